"""Wrong compilers, gin settings, traces and output folders."""

from tests.tools.bad_input.mistake import OUTPUT_FLAG, Mistake

WITH_CLANG = ("deploy", "doctor", "fetch_corpus", "generate_default_trace", "train_locally", "evaluate")
WITH_OPTIONS = ("deploy", "evaluate", "optimize")
REFERENCE = "docs/pass_options.md describes the file"
INSTALL = "install e.g. the packages clang-19 llvm-19 lld-19, or give another by --clang_path"


def clang(name: str, path: str, *words: str, tools: tuple[str, ...] = WITH_CLANG) -> Mistake:
    return Mistake(f"clang {name}", tools, {"clang_path": path}, (path, *words))


def in_use(*tools: str) -> tuple[Mistake, ...]:
    """Another process locks the folder."""
    return tuple(
        Mistake(
            "folder in use",
            (tool,),
            {OUTPUT_FLAG[tool]: "held"},
            ("held: another process is working in it", f"give another --{OUTPUT_FLAG[tool]}"),
        )
        for tool in tools
    )


MISTAKES = (
    *in_use("deploy", "extract_ir", "generate_vocab", "train_bc", "train_locally"),
    *in_use("evaluate", "export_policy", "make_corpus", "corpus_stats", "search", "screen_options"),
    *in_use("cost_model blocks", "cost_model profile", "cost_model train"),
    clang("missing", "no/such/clang", "no such file", INSTALL),
    clang("not on PATH", "clang-99", "no such program on PATH", INSTALL, tools=("doctor",)),
    clang("not executable", "clang-not-executable", "not executable; check its permissions"),
    clang("is a folder", "corpus", "found a folder", INSTALL, tools=("doctor",)),
    clang("too old", "clang-old", "expected clang >= 17", "found 14.0.6", INSTALL),
    clang(
        "is a deployment's",
        "prefix/bin/mlgo-clang",
        "is a compiler with a policy of its own, made by compiler_opt deploy",
        "such as the one that it runs: --clang_path=/usr/bin/clang-19",
    ),
    clang("is another program", "clang-other", "expected clang", INSTALL, tools=("doctor",)),
    Mistake(
        "unknown gin parameter",
        ("generate_default_trace", "train_bc", "train_locally"),
        {"gin_bindings": "network.colour = 'red'"},
        ("--gin_bindings=network.colour = 'red'", "colour", "expected name.parameter=value"),
    ),
    Mistake(
        "unknown gin parameter in a file",
        ("train_bc", "train_locally"),
        {"gin_files": "unknown.gin"},
        ("--gin_files=unknown.gin", "colour", "fix the file"),
    ),
    Mistake(
        "Ray's address without Ray",
        ("train_locally",),
        {"ray_address": "auto"},
        ("--ray_address=auto", "--worker_manager=ray only; give that, too"),
    ),
    Mistake(
        "gin file that does not ship",
        ("train_bc", "train_locally"),
        {"gin_files": "inlining/pop"},
        (
            "--gin_files=inlining/pop: no such file; expected a path, or one of those that ship: inlining/{bc_max,",
            "ppo,",
        ),
    ),
    Mistake(
        "gin file missing",
        ("generate_default_trace", "train_bc", "train_locally"),
        {"gin_files": "no/such.gin"},
        ("--gin_files=no/such.gin: no such file",),
    ),
    Mistake(
        "gin value of another type",
        ("train_bc", "train_locally"),
        {"gin_bindings": "train_eval.seed = 'red'"},
        ("train_eval.seed", "expected int", "'red'"),
    ),
    Mistake(
        "gin value out of range",
        ("train_locally",),
        {"gin_bindings": "train_eval.num_modules = 0"},
        ("train_eval.num_modules: expected at least 1, found 0",),
    ),
    *(
        Mistake(
            "trace missing",
            (tool,),
            {flag: "no/such/trace"},
            ("no/such/trace: no such", "compiler_opt generate_default_trace"),
        )
        for tool, flag in {"generate_vocab": "input", "train_bc": "data_path"}.items()
    ),
    Mistake(
        "output below a file", ("verify_corpus",), {"output_path": "file/x.json"}, ("file/x.json", "cannot be written")
    ),
    Mistake(
        "no such problem",
        ("evaluate", "generate_default_trace"),
        {"compile_task": "cooking"},
        ("unknown problem 'cooking'",),
    ),
    Mistake("no such baseline", ("evaluate",), {"baselines": "sometimes"}, ("unknown baseline 'sometimes'",)),
    Mistake("no such log", ("evaluate",), {"training_log": "no/such.jsonl"}, ("cannot read the training log",)),
    Mistake(
        "filter of no module",
        ("evaluate", "generate_default_trace"),
        {"module_filter": "absent"},
        ("'absent' matches none of 4 modules",),
    ),
    Mistake("filter of modules", ("generate_default_trace",), {"module_filter": "["}, ("not a regular expression",)),
    Mistake("no such project", ("evaluate",), {"projects": "absent"}, ("there is no project 'absent'",)),
    Mistake("sample of none", ("generate_default_trace",), {"sampling_rate": "0"}, ("sampling rate",)),
    Mistake("no trace", ("generate_default_trace",), {"output_path": None}, ("expected --output_path",)),
    Mistake(
        "policy without a report",
        ("generate_default_trace",),
        {"policy_path": "policy"},
        ("expected both --policy_path and",),
    ),
    Mistake(
        "record of no policy",
        ("generate_default_trace",),
        {"record_policy": "true"},
        ("expected --policy_path, which decides",),
    ),
    Mistake(
        "report on no policy",
        ("generate_default_trace",),
        {"output_path": None, "policy_path": "build", "output_performance_path": "out/performance.csv"},
        ("expected a policy",),
    ),
    Mistake("no compiles", ("search",), {"budget": "0"}, ("--budget", "3")),
    Mistake(
        "an option that the compiler lacks",
        ("screen_options",),
        {"option": "-no-such-option=true"},
        ("--option=-no-such-option=true", "has no such option"),
    ),
    *(
        Mistake(f"options {name}", WITH_OPTIONS, {"options": path}, (f"{path}: ", *words, REFERENCE))
        for name, path, *words in (
            ("missing", "no/such.json", "no such file"),
            ("are a folder", "options", "expected a file"),
            ("are not JSON", "file", "expected JSON"),
            ("are 100 MB", "options/huge.json", "expected at most 1048576 bytes, found 104857600"),
        )
    ),
    Mistake(
        "an option that names a file",
        WITH_OPTIONS,
        {"options": "options/path.json"},
        ("options/path.json: Oz: expected an option of LLVM's such as", "found '-info-output-file=/tmp/x'"),
    ),
    Mistake(
        "options of which the compiler lacks one, crashes, writes files or prints with others",
        ("evaluate",),
        {"options": "options/not-taken.json", "policy_path": "none"},
        ("expected options to evaluate, found none; give --options, or a policy",),
    ),
    Mistake("an option of clang", ("screen_options",), {"option": "a b"}, ("expected an option of LLVM's",)),
    Mistake("budgets that descend", ("search",), {"budgets": "100,50"}, ("--budgets", "expected ascending numbers")),
    Mistake("budgets of no headroom", ("search",), {"budgets": "50,100"}, ("--budgets", "with --headroom only")),
    Mistake("a budget of headroom", ("search",), {"headroom": "true"}, ("--budget", "the last of --budgets")),
    Mistake(
        "damaged state of a search",
        ("search",),
        {"output_dir": "found"},
        ("search_state.json: not the state of a search", "remove the file to start over"),
    ),
    Mistake("a former flag for the folder", ("deploy", "optimize"), {"output": "x"}, ("Did you mean: output_dir",)),
    Mistake("a file's flag for a folder", ("evaluate", "import_policy"), {"output_path": "x"}, ("mean: output_dir",)),
    Mistake("a former flag for policies", ("deploy",), {"policy": "x"}, ("Did you mean: policy_path",)),
    Mistake("a former limit", ("train_locally", "search"), {"max_minutes": "1"}, ("Did you mean: minutes",)),
    *(
        Mistake(f"output folder {name}", (tool,), {flag: path}, (f"{path}", "cannot be written", "another"))
        for tool, flag in OUTPUT_FLAG.items()
        for name, path in {"below a file": "file/out", "on a file system that takes none": "/proc/out"}.items()
    ),
)
