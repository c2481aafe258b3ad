"""Damaged corpora, and folders that are no corpora."""

from tests.tools.bad_input.mistake import Mistake

WITH_CORPUS = ("generate_default_trace", "train_locally", "evaluate")
REMAKE = "extract the corpus again"


def corpus(name: str, path: str, *words: str, tools: tuple[str, ...] = WITH_CORPUS) -> Mistake:
    return Mistake(f"corpus {name}", tools, {"data_path": path}, (path, *words))


MISTAKES = (
    corpus(
        "missing",
        "no/such/corpus",
        "no such file",
        "compiler_opt fetch_corpus",
        "compiler_opt extract_ir",
        tools=(*WITH_CORPUS, "explain", "verify_corpus", "corpus_stats", "search", "screen_options"),
    ),
    corpus(
        "folder without description",
        "build",
        "corpus_description.json: no such file",
        "compiler_opt fetch_corpus",
        tools=("evaluate",),
    ),
    corpus(
        "file of bitcode",
        "corpus/plain/list.c.o.bc",
        "expected the folder of a corpus, found a file",
        "compiler_opt make_corpus",
        tools=(*WITH_CORPUS, "explain", "corpus_stats"),
    ),
    Mistake(
        "bitcode of -O0",
        ("generate_default_trace",),
        {"data_path": "corpora/optnone"},
        ("corpora/optnone: no module has any decisions", "optnone", "compiled at -O0", "build again"),
    ),
    corpus("not JSON", "corpora/not-json", "expected JSON", REMAKE),
    corpus("lacks modules", "corpora/no-modules", "expected the key 'modules'", REMAKE),
    corpus("empty", "corpora/empty", "the corpus is empty", REMAKE),
    corpus("leaves its folder", "corpora/parent", "'../../x'", "stays inside", REMAKE),
    corpus("absolute path", "corpora/absolute", "'/etc/passwd'", "stays inside", REMAKE),
    corpus("not UTF-8", "corpora/not-utf8", "expected JSON", REMAKE, tools=("evaluate",)),
    corpus("huge", "corpora/huge", "expected at most 134217728 bytes, found 4294967296", REMAKE, tools=("evaluate",)),
    corpus(
        "link that leaves", "corpora/link", "plain/data.c.o.cmd: is a link that leaves", REMAKE, tools=("evaluate",)
    ),
    Mistake(
        "flag that no corpus may use",
        ("train_locally", "evaluate"),
        {"gin_bindings": "problem_config.flags_to_add = ['-load', 'x.so']"},
        ("problem_config.flags_to_add: '-load' is not an option that a corpus may use", "--trust_corpus"),
    ),
    corpus("file missing", "corpora/file-missing", "plain/list.c.o.bc: no such file", REMAKE, tools=("evaluate",)),
    corpus("truncated", "corpora/truncated", "area.cpp.o.bc", "truncated", REMAKE),
    corpus("of a newer LLVM, as recorded", "corpora/newer-recorded", "LLVM 22.1.0", "use a clang >= 22"),
    corpus("of a newer LLVM, not recorded", "corpora/newer", "LLVM 22", "use a clang >= 22"),
    Mistake(
        "no such folder",
        ("combine_training_corpus",),
        {"root_dir": "no/such/folder"},
        ("no/such/folder: cannot be read", "give the folder whose sub-folders are corpora"),
    ),
    Mistake(
        "no corpora",
        ("combine_training_corpus",),
        {"root_dir": "policy"},
        ("policy: none of 0 sub-folders is a corpus", "give the folder that holds the corpora"),
    ),
    Mistake(
        "corpora that differ",
        ("combine_training_corpus",),
        {"root_dir": "together-not"},
        ("'one' and 'two' differ in 'global_command_override'", "combine only those that agree"),
    ),
    Mistake(
        "no such task", ("corpus_stats",), {"decisions": "true", "compile_task": "knitting"}, ("knitting", "inlining")
    ),
)
