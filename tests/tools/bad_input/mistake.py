"""Flags with which each entry point succeeds, and the form of a mistake."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
CLANG, NEWER_CLANG = "/usr/bin/clang-19", "/usr/bin/clang-22"

GOOD: Mapping[str, Mapping[str, str]] = {
    "policy margin": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy"},
    "cost_model blocks": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/blocks"},
    "deploy": {"clang_path": CLANG, "policy_path": "policy", "output_dir": "out/prefix"},
    "doctor": {"clang_path": CLANG},
    "fetch_corpus": {"clang_path": CLANG, "output_dir": "out/corpus", "set": "smoke", "cache_dir": "out/cache"},
    "extract_ir": {"input": "build/compile_commands.json", "output_dir": "out/corpus"},
    "generate_default_trace": {"clang_path": CLANG, "data_path": "corpus", "output_path": "out/trace"},
    "generate_vocab": {"input": "trace", "output_dir": "out/vocabulary"},
    "train_bc": {"data_path": "trace", "vocab_path": "vocabulary", "output_dir": "out/run"},
    "train_locally": {
        "clang_path": CLANG,
        "data_path": "corpus",
        "vocab_path": "vocabulary",
        "output_dir": "out/run",
        "gin_files": str(ROOT / "gin_configs/inlining/ppo_nn_agent.gin"),
    },
    "evaluate": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy", "output_dir": "out/results"},
    "explain": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy", "output_dir": "out/explanation"},
    "optimize": {
        "clang_path": CLANG,
        "compile_commands": "build/list.json",
        "link_command": "ar rcs liblist.a list.o",
        "output_dir": "out/optimized",
        "warmstart_policy_dir": "default",
        "minutes": "0.01",
        "search_minutes": "0.01",
    },
    "search": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/found", "budget": "3"},
    "screen_options": {
        "clang_path": CLANG,
        "data_path": "corpus",
        "output_dir": "out/screening",
        "option": "-disable-lsr=true",
    },
    "export_policy": {"policy_path": "policy", "output_dir": "out/exported", "format": "native"},
    "import_policy": {"policy_path": "policy", "output_dir": "out/imported"},
    "verify_corpus": {"clang_path": CLANG, "data_path": "corpus", "original_dir": "build"},
    "make_corpus": {"input_dir": "corpus", "output_dir": "out/corpus", "default_args": "-cc1 -Oz"},
    "cost_model profile": {
        "clang_path": CLANG,
        "benchmark": "programs/bench 10",
        "output_dir": "out/profile",
        "sampling_s": "0",
    },
    "combine_training_corpus": {"root_dir": "together"},
    "corpus_stats": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/statistics"},
    "cost_model train": {"blocks_dir": "blocks", "output_dir": "out/model", "units": "4", "epochs": "1"},
    "cost_model evaluate": {"blocks_dir": "blocks", "split": "train"},
}
"""Flags with which each succeeds in the folder of `place.make_place`; a mistake replaces one."""

OUTPUT_FLAG = {
    tool: next(name for name, value in flags.items() if value.startswith("out/"))
    for tool, flags in GOOD.items()
    if any(value.startswith("out/") for value in flags.values())
}


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake and its flags; the message contains `words`, such as the name of the file and the remedy.

    Attributes:
      flags: in place of the good ones; None leaves a flag out.
    """

    name: str
    tools: tuple[str, ...]
    flags: Mapping[str, str | None]
    words: tuple[str, ...]
