"""Builds from which no corpus can be made, or with which none can be compared."""

from tests.tools.bad_input.mistake import Mistake

MISTAKES = (
    Mistake(
        "no build",
        ("extract_ir",),
        {"input": "no/such/compile_commands.json"},
        ("no/such/compile_commands.json: cannot be read", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
    ),
    Mistake("build is not JSON", ("extract_ir",), {"input": "file"}, ("file: expected JSON",)),
    Mistake(
        "build without bitcode",
        ("extract_ir",),
        {"input": "build/plain.json"},
        ("build/plain.o", "no section .llvmbc", "compile with -Xclang -fembed-bitcode=all"),
    ),
    Mistake(
        "no objects",
        ("verify_corpus",),
        {"original_dir": "no/such/build"},
        ("--original_dir=no/such/build: no such folder", "give the one of the build's objects"),
    ),
    Mistake("sample of none", ("verify_corpus",), {"sample": "0"}, ("--sample", "a positive integer")),
    Mistake(
        "options of no use",
        ("make_corpus",),
        {"default_args": "-Oz"},
        ("--default_args=-Oz: ", "start with '-cc1'", "such as '-cc1 -Oz'"),
    ),
    Mistake(
        "options that load code",
        ("make_corpus",),
        {"default_args": "-cc1 -load x.so"},
        ("--default_args=-cc1 -load x.so: ", "'-load' is not an option that a corpus may use"),
    ),
    Mistake(
        "no bitcode",
        ("make_corpus",),
        {"input_dir": "build"},
        ("build: none of 0 files *.bc is a module", "give another --input_dir"),
    ),
    Mistake(
        "no such folder",
        ("make_corpus",),
        {"input_dir": "no/such/folder"},
        ("no/such/folder: cannot be read", "--input_dir"),
    ),
    Mistake("no parameter file", ("extract_ir",), {"input": "gone", "input_type": "params"}, ("gone: cannot be read",)),
    Mistake(
        "no tree of objects",
        ("extract_ir",),
        {"input": "file", "input_type": "directory"},
        ("file: expected a folder of objects, found none",),
    ),
    Mistake(
        "no result of a Bazel query",
        ("extract_ir",),
        {"input": "file", "input_type": "bazel_aquery"},
        ("file: expected JSON", "bazel aquery --output=jsonproto"),
    ),
    Mistake(
        "no link with ThinLTO",
        ("extract_ir",),
        {"input": "build", "input_type": "directory", "thinlto_build": "local"},
        ("saved no file that ends in .3.import.bc", "-Wl,--save-temps=import -Wl,--thinlto-emit-index-files"),
    ),
    Mistake(
        "ThinLTO in the linker, of a database",
        ("extract_ir",),
        {"thinlto_build": "local"},
        ("--input_type=json: does not describe a link", "give params or directory"),
    ),
    Mistake(
        "build by clang-cl",
        ("extract_ir",),
        {"input": "build/clang-cl.json"},
        (
            "build/clang-cl.json: has no object to extract, only 1 entries of clang-cl, whose options (/c /Fo)",
            "data.obj",
        ),
    ),
    Mistake(
        "build without compilations",
        ("extract_ir",),
        {"input": "build/links.json"},
        ("build/links.json: has no object to extract, only 1 entries that link (app); 1 entries without a command",),
    ),
    Mistake("no input", ("extract_ir",), {"input": None}, ("--input",)),
    Mistake("unknown type of input", ("extract_ir",), {"input_type": "nonsense"}, ("--input_type",)),
    Mistake("no filter", ("extract_ir",), {"cmd_filter": "("}, ("is not a regular expression",)),
    Mistake("no output folder", ("extract_ir", "fetch_corpus"), {"output_dir": None}, ("--output_dir",)),
    Mistake("no such set", ("fetch_corpus",), {"set": "enormous"}, ("'enormous'", "smoke")),
    Mistake(
        "output folder holds something else",
        ("extract_ir",),
        {"output_dir": "corpus"},
        ("corpus: is not empty; give another --output_dir, or --overwrite",),
    ),
)
