"""Generates command lines of clang with their surroundings: levels from all sources, names, streams, response files.

A case is a function of its seed and number alone. Many are mistakes: a driver must fail as clang does.
"""

import dataclasses
import random
import re
import shlex
from collections.abc import Mapping, Sequence

from tests.deploy.sources import LEAN

Words = tuple[str, ...]

_ODD = 0.06

NUM_BIG = 700
_BIG = LEAN + "".join(f"int f{i}(int x) {{ int unused{i}; return x * {i} + {i % 7}; }}\n" for i in range(NUM_BIG))

TEMPLATE: Mapping[str, str] = {
    "lean.c": LEAN,
    "lean.cpp": LEAN + "template <class T> T twice(T t) { return t + t; }\nint both(int x) { return twice(x); }\n",
    "main.c": LEAN + "int main(void) { return unit() + flat() + cube() == 0; }\n",
    "other.c": "int other(int x) { return x + 1; }\n",
    "use.c": '#include "head.h"\n' + LEAN + "const char *name = __FILE__;\nint size = SIZE;\n",
    "head.h": "#define SIZE 3\n",
    "bad.c": LEAN + "int bad(void) { return missing; }\n",
    "warn.c": LEAN + "int warn(int x) { int unused; if (x = 3) return 1; }\n",
    "big.c": _BIG,
    "plain.s": ".text\n.globl assembled\nassembled: ret\n",
    "cpp.S": "#define NAME assembled\n.text\n.globl NAME\nNAME: ret\n",
    "with space.c": LEAN,
    "-dash.c": LEAN,
    "noext": LEAN,
    "empty.c": "",
    "sub/lean.c": LEAN.replace("area", "room"),
    "sub/head.h": "#define SIZE 4\n",
    "wd/lean.c": LEAN.replace("area", "yard"),
    "wd/use.c": '#include "head.h"\n' + LEAN + "int size = SIZE;\n",
    "wd/head.h": "#define SIZE 5\n",
    "wd/main.c": LEAN + "int main(void) { return unit() + flat() + cube() != 0; }\n",
    "old.o": "of an earlier compilation\n",
    "wd/old.o": "of an earlier compilation there\n",
}
"""The files of the folder in which every command runs; all of C and C++ but the short ones hold `LEAN`."""

LINKS: Mapping[str, str] = {"link.o": "linked.o", "linked.c": "lean.c"}

PRINTED = "printed"
"""The file for the commands that clang prints as it runs them."""

LINK_NAMES = (
    *("c++", "cc", "gcc", "g++", "cpp", "clang-cl", "clang-cpp", "clang-c++", "cc-2024", "my-cc", "foo-clang"),
    *("x86_64-linux-gnu-gcc", "x86_64-pc-linux-gnu-clang", "aarch64-linux-gnu-clang", "aarch64-linux-gnu-clang++-{}"),
    *("i386-pc-linux-gnu-clang-{}", "x86_64-linux-gnu-c++", "clang-{}", "clang++-{}", "riscv64-linux-gnu-clang-cpp"),
)
"""Of links to the compiler; `{}` is its version."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A command and its surroundings.

    Attributes:
      name: `clang`, `clang++`, or one of `LINK_NAMES`.
      words: its arguments.
      files: additional files of the folder.
      variables: environment variables; None as a value removes one.
      shell: what a shell does before, such as `ulimit -n 8`; it has the compilers as $CC and $CXX.
      stdin: `null`, `closed`, `pipe` or `file`; the latter two have the text of `lean.c`.
      stdout, stderr: `pipe`, `closed`, `full`, `unread`, or `slow` (a pipe that does not block and is read late).
    """

    name: str = "clang"
    words: Words = ()
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    shell: str = ""
    stdin: str = "null"
    stdout: str = "pipe"
    stderr: str = "pipe"


@dataclasses.dataclass(frozen=True)
class _Table:
    """Alternatives, those that work and those that mostly do not."""

    usual: Sequence[Words]
    odd: Sequence[Words]

    def choice(self, rng: random.Random) -> Words:
        return rng.choice(self.odd if self.odd and rng.random() < _ODD else self.usual)


def _table(text: str) -> _Table:
    """Alternatives, separated by ` | ` or lines, in words of a shell; `3 x` makes one likelier. Odd ones come last."""
    usual, _, odd = text.partition("----")
    return _Table(_rows(usual), _rows(odd) if odd else ())


def _rows(text: str) -> Sequence[Words]:
    rows: list[Words] = []
    for alternative in re.split(r" \| |\n", text.strip()):
        times, words = (
            alternative.strip().rpartition(" x ")[::2] if re.match(r"\s*\d+ x ", alternative) else ("1", alternative)
        )
        words = words.replace("(nothing)", "").replace("(long)", "n" * 250).replace("(too long)", "n" * 256)
        rows += [tuple(shlex.split(words))] * int(times)
    return rows


_LEVELS = _table(r"""
    32 x -Oz | 4 x -O2 | -Os | -O3 | -O1 | -O0 | -O | -Og | -Ofast | -O4 | -O9 | --optimize=z | --optimize=2
    --optimize | --optimize=fast | -O-1 | -O02 | -Xclang -O2 | -Xclang -Oz | -Xclang=-Oz | -Xarch_host -O2
    -Xarch_host -Oz | -Xarch_x86_64 -Oz | -Xarch_arm64 -O2 | -Xarch_device -O2 | -Xpreprocessor -Oz | -Xlinker -Oz
    -Wl,-O2 | -Wp,-O2 | -I -O2 | -MF -Oz
    ----
    -O5x | -Oq | -O z | -Xarch_host -Xclang | -Xassembler -O2 | -mllvm -O2 | -D -O2 | -include -O2 | -x -Oz | --
    -### | -Xclang -disable-llvm-passes | -Xclang -disable-O0-optnone
""")

_STAGES = _table(r"""
    14 x -c | 3 x -S | --compile | --assemble | -E | --preprocess | -P -E | -fsyntax-only | -M | -MM | -emit-llvm -c
    -emit-llvm -S | -S -c | -c -E | (nothing) | -fuse-ld=lld | -fuse-ld=lld -Wl,-Map=out.map | -shared -fPIC
    -Wl,-Map,out.map | -Xlinker -Map=out.map | -flto -fuse-ld=lld | -flto=thin -fuse-ld=lld | -flto -c
    -flto=thin -c | -flto=auto -c | -ffat-lto-objects -flto -c | -ccc-print-phases | -ccc-print-bindings | -###
    --version | -v -c | -dumpmachine | -print-prog-name=ld | -print-file-name=libc.a | -fdriver-only
    --print-supported-cpus | -print-search-dirs | -### -c | -no-integrated-as -c | -fno-integrated-cc1 -c
    -via-file-asm -c | -pipe -c
    ----
    -emit-llvm | -cc1 -emit-obj | -cc1as | --precompile | -r | -emit-ast | --analyze
""")

_STOPS = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--compile", "--assemble", "--preprocess", "-shared"}
"""What does not link a program, which would need `main`."""

_OUTPUTS = _table(r"""
    6 x (nothing) | 6 x -o out.o | -oout.o | --output=out.o | --output out.o | -o sub/out.o | -o ./out.o | -o old.o
    -o /dev/null | -o link.o | -o out.s | -o {place}/out.o | -o -out.o | -o (long)
    ----
    -o nowhere/out.o | -o sub | -o | -o (too long) | -o /proc/nothing.o | -o '' | -o - | -o lean.c | -o /dev/stdout
    -o a.o -o b.o
""")

_INPUTS = _table(r"""
    18 x lean.c | 3 x lean.cpp | 3 x main.c | 3 x use.c | 3 x warn.c | big.c | ./lean.c | {place}/lean.c
    sub/lean.c | 'with space.c' | linked.c | empty.c | lean.c other.c | lean.c sub/lean.c | main.c other.c | plain.s
    cpp.S | lean.c cpp.S | -x c - | -xc - | -xc /dev/stdin | -x c noext | -xc++ lean.c | -x none lean.c
    -x c lean.c -x none cpp.S | noext | -x assembler-with-cpp cpp.S | --language=c noext | --language c++ lean.c
    head.h | -- lean.c | lean.c -- other.c | lean.c lean.c | -include head.h lean.c | -x c-header head.h
    -xcpp-output lean.c | main.c plain.s | main.c -lm
    ----
    4 x bad.c | bad.c lean.c | lean.c bad.c | missing.c | lean.c missing.c | (nothing) | - | -xnonsense lean.c
    -- -dash.c | -dash.c | -- -Oz | -x ir lean.c | @ lean.c | lean.c '' | sub | old.o | main.c -lnothing
""")

_EXTRAS = _table(r"""
    3 x -g | -Wall | -w | -MD | -MMD | -MD -MF x.d | -MD -MFx.d | -MD -MT t | -MMD -MP -MQ t$x | -MJ x.json
    -MJx.json | -MF x.d | -gen-cdb-fragment-path cdb | -save-temps | -save-temps=obj | -save-temps=cwd | -save-stats
    -save-stats=obj | -fstack-usage | -gsplit-dwarf -g | -gsplit-dwarf=single -g | -g1 | -grecord-command-line -g
    -frecord-command-line | -frecord-gcc-switches | -Rpass=inline | -Rpass-missed=inline | -Rpass-analysis=.*
    -fsave-optimization-record | -ftime-trace | -fsave-optimization-record=bitstream
    -foptimization-record-file=r.yaml | --serialize-diagnostics d | -serialize-diagnostics x.dia
    -fcolor-diagnostics | -ferror-limit=1 | -DA=1 | -D A=1 | '-DA='"'"'x y'"'"'' | '-DA="q\""' | -UA | -Isub
    -I sub | -iquote sub | -isystem sub | --include-directory=sub | -idirafter sub | -L. | -lm | -Wnonsense
    -std=c11 | -ansi | -pedantic | -fPIC | -fno-pic | -march=x86-64-v3 | -target aarch64-linux-gnu
    --target=aarch64-linux-gnu | --target=x86_64-windows-msvc | --target=i386-linux-gnu | --driver-mode=g++
    --driver-mode=gcc | --driver-mode=cpp | --driver-mode=cl | -fuse-ld=lld | -flto | -flto=thin | -fno-lto
    -nostdlib | -Wl,-z,now | -z now | -rdynamic | -pthread | -ffunction-sections | -fno-inline
    -fno-inline-functions | -finline-limit=3 | -fno-builtin | -fprofile-instr-generate | -fsanitize=undefined
    -fdebug-prefix-map={place}=x | -ffile-prefix-map={place}=x | -no-canonical-prefixes | -v | -H
    -mllvm -inline-threshold=1 | -mllvm -stats | -Xclang -emit-llvm | -Xclang -S | -Xarch_host -DX=1
    -Xarch_x86_64 -g | -dumpdir dump- | -Qunused-arguments
    --start-no-unused-arguments -lm --end-no-unused-arguments | -fembed-bitcode | -fproc-stat-report
    -fproc-stat-report=stat.csv | -ftime-report | -fcrash-diagnostics-dir=sub | -fno-crash-diagnostics | -Wp,-MD,p.d
    -Wp,-DX | -fmodules | -fno-integrated-as | -fverbose-asm | -imacros head.h | -fmax-errors=1 | -nocudainc
    -fopenmp
    ----
    -fdiagnostics-format=json | -nonsense | --nonsense=3 | -fnonsense | -mnonsense | -Xclang -nonsense
    -mllvm -nonsense | -std=c++20 | -std=nonsense | -mcpu=nonsense | --target riscv64-linux-gnu | --driver-mode=x
    -fsanitize=nonsense | -fcoverage-mapping | -fpass-plugin=missing.so | -fplugin=missing.so
    -Xclang -load -Xclang missing.so | -include missing.h | -gen-reproducer | -index-store-path index
    -Wa,--no-such | -Wa,-g | -include - | --config= | -Wall -Werror | -Wl,--no-such | -Xlinker --no-such
    -fuse-ld=nonsense | -m32 | -static | --help | -### | -M | -Xclang -ast-dump
""")

_WORKING_DIRECTORIES = _table(r"""
    -working-directory wd | -working-directory=wd | -working-directory={place}/wd | -working-directory {place}/wd
    -working-directory=nowhere | -working-directory= | -working-directorywd | --working-directory=wd
    --working-directory wd | -Xclang -working-directory=wd
""")

_VARIABLES = _table(r"""
    'CCC_OVERRIDE_OPTIONS=# O2' | 'CCC_OVERRIDE_OPTIONS=# Oz' | 'CCC_OVERRIDE_OPTIONS=# +-O2'
    'CCC_OVERRIDE_OPTIONS=# +-Oz' | 'CCC_OVERRIDE_OPTIONS=# ^-O2' | 'CCC_OVERRIDE_OPTIONS=# ^-Oz'
    'CCC_OVERRIDE_OPTIONS=# x-Oz' | 'CCC_OVERRIDE_OPTIONS=# X-Oz' | 'CCC_OVERRIDE_OPTIONS=# s/-Oz/-O2/'
    'CCC_OVERRIDE_OPTIONS=# s/-O2/-Oz/' | 'CCC_OVERRIDE_OPTIONS=# s/z/2/' | 'CCC_OVERRIDE_OPTIONS=# +-g ^-w'
    'CCC_OVERRIDE_OPTIONS=# +-c' | 'CCC_OVERRIDE_OPTIONS=#O2' | CCC_OVERRIDE_OPTIONS=O2 | CCC_OVERRIDE_OPTIONS=+-Oz
    CCC_OVERRIDE_OPTIONS=x-Oz | CCC_OVERRIDE_OPTIONS=s/-Oz/-O2/ | 'CCC_OVERRIDE_OPTIONS=#' | CCC_OVERRIDE_OPTIONS=
    CCC_OVERRIDE_OPTIONS=nonsense | CCC_OVERRIDE_OPTIONS=^-nonsense | 8 x MLGO_NEVER_WORSE=1
    TMPDIR | TMPDIR=/nowhere | TMPDIR=sub | HOME | PATH | PATH= | TERM=xterm | CPATH=sub | C_INCLUDE_PATH=sub
    SOURCE_DATE_EPOCH=1 | CC_PRINT_OPTIONS=1 | CC_PRINT_OPTIONS=1 CC_PRINT_OPTIONS_FILE=printed | NO_COLOR=1
    CC_LOG_DIAGNOSTICS=1 | CC_LOG_DIAGNOSTICS=1 CC_LOG_DIAGNOSTICS_FILE=logged | CC_PRINT_HEADERS=1 | LANG=xx
    CC_PRINT_HEADERS=1 CC_PRINT_HEADERS_FILE=headers | CC_PRINT_PROC_STAT=1 | DEPENDENCIES_OUTPUT=deps
    SUNPRO_DEPENDENCIES=deps | CLANG_NO_DEFAULT_CONFIG=1 | CLANG_SPAWN_CC1=1 | LIBRARY_PATH=sub | COMPILER_PATH=sub
    FORCE_CLANG_DIAGNOSTICS_CRASH=1 | PWD=/ | GCC_EXEC_PREFIX=/x | CL=/O2 | _CL_=-Oz | CL=/c _CL_=/clang:-Oz
""")
"""Each word sets a variable, or removes it if it has no value."""

_SHELLS = (
    """
ulimit -n 4 | ulimit -n 5 | ulimit -n 6 | ulimit -n 7 | ulimit -n 8 | ulimit -n 9 | ulimit -n 10 | ulimit -n 16
ulimit -f 1 | umask 077 | umask 0 | chmod a-w sub | rm lean.c | touch -d @9999999999 old.o | ln lean.c out.o
""".strip()
    .replace(" | ", "\n")
    .splitlines()
)
_SIGNALS = ("CHLD", "CHLD", "PIPE", "INT")
_SET = "set -- env"
_PIECES = (
    *("-Oz", "-O2", "-c", "lean.c", "-DA=", "it", "-o", "x.o", "-g"),
    *(
        "'",
        '"',
        "\\",
        " ",
        "\n",
        "\r\n",
        "\t",
        "@deep.rsp",
        "#",
        "\0",
        "\v",
        "\\\n",
        "\\'",
        '\\"',
        "''",
        "$x",
        "\u00e9",
    ),
)
_ENCODINGS = ("utf-8",) * 9 + ("utf-8-sig", "utf-16", "utf-16-le-bom", "utf-16-be-bom", "utf-16-le", "latin-1")


def generate(seed: int, number: int) -> Case:
    """The case of this number."""
    rng = random.Random(f"{seed} {number}")
    groups = [_LEVELS.choice(rng) for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 2, 3)))]
    stage, output, inputs = _STAGES.choice(rng), _OUTPUTS.choice(rng), _INPUTS.choice(rng)
    if rng.random() >= _ODD:
        if not _STOPS.intersection(stage):
            inputs = tuple("main.c" if word == "lean.c" else word for word in inputs)
        elif len([word for word in inputs if "." in word]) > 1:
            output = ()
    groups += [stage, output]
    groups += [_EXTRAS.choice(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 5)))]
    if rng.random() < 0.08:
        groups.append(_WORKING_DIRECTORIES.choice(rng))
    rng.shuffle(groups)
    # What ends the options comes last, mostly; and only a first -cc1 counts.
    groups.insert(len(groups) if rng.random() < 0.8 else rng.randrange(len(groups) + 1), inputs)
    groups.sort(key=lambda group: not (group and group[0].startswith("-cc1")))
    words = [word for group in groups for word in group]
    files: dict[str, bytes] = {}
    if rng.random() < 0.2:
        words = _with_configuration(rng, words, files)
    if rng.random() < 0.3:
        words = _with_response_file(rng, words, files, "a.rsp")
    case = Case(name=rng.choice(("clang", "clang", "clang", "clang++")), words=tuple(words), files=files)
    if rng.random() < 0.12:
        # A link looks for files beside itself with -no-canonical-prefixes.
        kept = tuple(word for word in case.words if word != "-no-canonical-prefixes")
        files = {name: content.replace(b"-no-canonical-prefixes", b"-H") for name, content in case.files.items()}
        case = dataclasses.replace(case, name=rng.choice(LINK_NAMES), words=kept, files=files)
        if case.name == "clang-cl" and rng.random() < 0.7:
            case = dataclasses.replace(case, words=_spelled_for_cl(rng, case.words))
    return _in_surroundings(rng, case)


def _in_surroundings(rng: random.Random, case: Case) -> Case:
    variables: dict[str, str | None] = {}
    while rng.random() < 0.2:
        variables |= {
            name: value if equals else None
            for name, equals, value in (w.partition("=") for w in _VARIABLES.choice(rng))
        }
    shell = rng.choice(_SHELLS) if rng.random() < 0.05 else ""
    if rng.random() < 0.05:
        shell += "\n" * bool(shell) + f'{_SET} --ignore-signal={rng.choice(_SIGNALS)} "$@"'
    odd = rng.random() < 0.1
    streams = ("closed", "full", "slow", "unread", "pipe", "pipe")
    return dataclasses.replace(
        case,
        variables=variables,
        shell=shell,
        stdin=rng.choice(("null", "null", "null", "null", "closed", "pipe", "file")),
        stdout=rng.choice(streams) if odd else "pipe",
        stderr=rng.choice(streams) if odd else "pipe",
    )


def _with_configuration(rng: random.Random, words: list[str], files: dict[str, bytes]) -> list[str]:
    """Adds a configuration file with a level or other options, and what makes clang read it."""
    content = [word for group in (_LEVELS.choice(rng), _EXTRAS.choice(rng)) for word in group]
    name = rng.choice(("x.cfg", "clang.cfg", "clang++.cfg", "x86_64-pc-linux-gnu-clang.cfg", "sub/y.cfg"))
    text = rng.choice((" ", "\n", "\n# comment\n", " \\\n")).join(_quoted(rng, word, windows=False) for word in content)
    if rng.random() < 0.3:
        files["sub/nested.cfg"] = files["nested.cfg"] = _LEVELS.choice(rng)[0].encode()
        text += "\n" + rng.choice(("@nested.cfg", "--config=nested.cfg", "@<CFGDIR>/nested.cfg", "@missing.cfg"))
    files[name] = _encoded(rng, text) if rng.random() < 0.2 else text.encode()
    folders = (("--config-user-dir=.",), ("--config-system-dir={place}",), ("--config-user-dir={place}",))
    added = [
        *rng.choice(((f"--config=./{name}",), ("--config", f"./{name}"), ("--config={place}/" + name,), folders[0]))
    ]
    if rng.random() < 0.3:
        added = [*rng.choice(((f"--config={name}",), ("--config", name), ("-config", name))), *rng.choice(folders)]
    if rng.random() < 0.1:
        added.append("--no-default-config")
    at = rng.randrange(len(words) + 1)
    return words[:at] + added + words[at:]


def _with_response_file(rng: random.Random, words: list[str], files: dict[str, bytes], name: str) -> list[str]:
    """Moves some words to a response file; sometimes it has noise, or nested ones."""
    start, end = sorted(rng.randrange(len(words) + 1) for _ in range(2))
    moved, windows = words[start:end], rng.random() < 0.15
    odd = (" \\\n", "\v", "\f", "\0") if rng.random() < _ODD else ()
    if name == "a.rsp" and rng.random() < 0.3:
        moved = _with_response_file(rng, moved, files, rng.choice(("deep.rsp", "sub/deep.rsp", "a.rsp")))
    if rng.random() < 0.15:
        text = "".join(rng.choice(_PIECES) for _ in range(rng.randrange(1, 12)))
        text += " " + " ".join(_quoted(rng, word, windows=windows) for word in moved)
    else:
        separator = rng.choice((" ", " ", "\n", "\n", "\r\n", "  \n", "\n\n", "\t", *odd))
        text = separator.join(_quoted(rng, word, windows=windows) for word in moved)
    files[name] = _encoded(rng, text)
    option = [rng.choice(("--rsp-quoting=windows", "--rsp-quoting=windows", "--rsp-quoting=nonsense"))] * windows
    if not windows and rng.random() < 0.05:
        option = ["--rsp-quoting=posix"]
    at = rng.choice((f"@{name}", f"@{name}", f"@./{name}", "@{place}/" + name))
    if rng.random() < _ODD:
        at = rng.choice(("@missing.rsp", "@sub", "@", f"@ {name}"))
    return [*option, *words[:start], at, *words[end:]]


def _encoded(rng: random.Random, text: str) -> bytes:
    encoding = rng.choice(_ENCODINGS)
    if encoding.endswith("-bom"):
        return ("\ufeff" + text).encode(encoding.removesuffix("-bom"))
    return text.encode(encoding, "replace")


def _quoted(rng: random.Random, word: str, *, windows: bool) -> str:
    """The word as a response file may spell it; at times not quite."""
    how = rng.randrange(10)
    if how == 0 or not word:
        return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if how == 1 and not windows:
        return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if how == 2:
        at = rng.randrange(len(word) + 1)
        return word[:at] + rng.choice(('""', "''", "\\" * (at < len(word)))) + word[at:]
    if how == 3 and not windows:
        return "".join("\\" + letter for letter in word)
    return word if windows else word.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"').replace(" ", "\\ ")


def _spelled_for_cl(rng: random.Random, words: Words) -> Words:
    options = {"-c": "/c", "-Oz": rng.choice(("/O1", "/clang:-Oz", "/Oz", "-Oz")), "-O2": "/O2", "-O0": "/Od"}
    options |= {"-o": rng.choice(("/Fo", "/o", "-o", "/Fe")), "-S": "/FA", "-g": "/Z7", "-Wall": "/W4"}
    return tuple(options.get(word, word) for word in words)


def shell_script(case: Case, command: str) -> str:
    """Lines of a shell that run the case with `command`, in a folder with the files of `TEMPLATE`."""
    lines = []
    for name, content in case.files.items():
        escaped = "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b"\\%'" else f"\\{byte:03o}" for byte in content
        )
        lines.append(f"printf '{escaped}' > {shlex.quote(name)}")
    lines += [line for line in case.shell.splitlines() if not line.startswith(_SET)]
    given = [f"{name}={shlex.quote(value)}" for name, value in case.variables.items() if value is not None]
    removed = [word for name, value in case.variables.items() if value is None for word in ("-u", name)]
    changed = [word for line in case.shell.splitlines() if line.startswith(_SET) for word in line.split()[3:-1]]
    before = ["env", *removed, *changed, *given] if removed or changed else given
    words = [
        '"$PWD"'.join(shlex.quote(part) if part else "" for part in word.split("{place}")) or "''"
        for word in case.words
    ]
    to = {"closed": "&-", "full": " /dev/full", "slow": " >(sleep 1; cat)", "unread": " >(exec true)"}
    ends = [f"{sign}{to[way]}" for sign, way in ((">", case.stdout), ("2>", case.stderr)) if way != "pipe"]
    ends.insert(0, {"null": "", "closed": "<&-", "pipe": "< <(cat lean.c)", "file": "<lean.c"}[case.stdin])
    note = "  # pipes with O_NONBLOCK" if "slow" in (case.stdout, case.stderr) else ""
    lines.append(" ".join(filter(None, [*before, command, *words, *ends])) + note)
    return "\n".join(lines)
