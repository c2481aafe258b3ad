"""The entry points, flags with which each succeeds, and the form of a mistake."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
CLANG, NEWER_CLANG = "/usr/bin/clang-19", "/usr/bin/clang-22"

SCRIPTS = {
    "choose_margin": "compiler_opt/tools/choose_margin.py",
    "collect_blocks": "compiler_opt/tools/collect_blocks.py",
    "deploy": "compiler_opt/tools/deploy.py",
    "doctor": "compiler_opt/tools/doctor.py",
    "fetch_corpus": "compiler_opt/tools/fetch_corpus.py",
    "extract_ir": "compiler_opt/tools/extract_ir.py",
    "generate_default_trace": "compiler_opt/tools/generate_default_trace.py",
    "generate_vocab": "compiler_opt/tools/generate_vocab.py",
    "train_bc": "compiler_opt/rl/train_bc.py",
    "train_locally": "compiler_opt/rl/train_locally.py",
    "evaluate": "compiler_opt/tools/evaluate.py",
    "explain": "compiler_opt/tools/explain.py",
    "optimize": "compiler_opt/tools/optimize.py",
    "export_policy": "compiler_opt/tools/export_policy.py",
    "import_policy": "compiler_opt/tools/import_policy.py",
    "search": "compiler_opt/tools/search.py",
    "headroom": "compiler_opt/tools/headroom.py",
    "screen_options": "compiler_opt/tools/screen_options.py",
    "verify_corpus": "compiler_opt/tools/verify_corpus.py",
    "make_corpus": "compiler_opt/tools/make_corpus.py",
    "profile_blocks": "compiler_opt/tools/profile_blocks.py",
    "combine_training_corpus": "compiler_opt/tools/combine_training_corpus.py",
    "corpus_stats": "compiler_opt/tools/corpus_stats.py",
    "train_throughput": "compiler_opt/tools/train_throughput.py",
    "evaluate_throughput": "compiler_opt/tools/evaluate_throughput.py",
}

GOOD: Mapping[str, Mapping[str, str]] = {
    "choose_margin": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy"},
    "collect_blocks": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/blocks"},
    "deploy": {"clang_path": CLANG, "policy": "policy", "output": "out/prefix"},
    "doctor": {"clang_path": CLANG},
    "fetch_corpus": {"clang_path": CLANG, "output_dir": "out/corpus", "set": "smoke", "cache_dir": "out/cache"},
    "extract_ir": {"input": "build/compile_commands.json", "output_dir": "out/corpus"},
    "generate_default_trace": {"clang_path": CLANG, "data_path": "corpus", "output_path": "out/trace"},
    "generate_vocab": {"input": "trace", "output_dir": "out/vocabulary"},
    "train_bc": {"data_path": "trace", "vocab_path": "vocabulary", "root_dir": "out/run"},
    "train_locally": {
        "clang_path": CLANG,
        "data_path": "corpus",
        "vocab_path": "vocabulary",
        "root_dir": "out/run",
        "gin_files": str(ROOT / "gin_configs/inlining/ppo_nn_agent.gin"),
    },
    "evaluate": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy", "output_path": "out/results"},
    "explain": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy", "output_path": "out/explanation"},
    "optimize": {
        "clang_path": CLANG,
        "compile_commands": "build/list.json",
        "link_command": "ar rcs liblist.a list.o",
        "output": "out/optimized",
        "warmstart_policy_dir": "default",
        "minutes": "0.01",
        "search_minutes": "0.01",
    },
    "search": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/found", "budget": "3"},
    "headroom": {"clang_path": CLANG, "data_path": "corpus", "output_dir": "out/headroom", "budgets": "3"},
    "screen_options": {
        "clang_path": CLANG,
        "data_path": "corpus",
        "output_dir": "out/screening",
        "option": "-disable-lsr=true",
    },
    "export_policy": {"policy_path": "policy", "output_path": "out/exported", "format": "native"},
    "import_policy": {"policy_path": "policy", "output_path": "out/imported"},
    "verify_corpus": {"clang_path": CLANG, "data_path": "corpus", "original_dir": "build"},
    "make_corpus": {"input_dir": "corpus", "output_dir": "out/corpus", "default_args": "-cc1 -Oz"},
    "profile_blocks": {
        "clang_path": CLANG,
        "benchmark": "programs/bench 10",
        "output_dir": "out/profile",
        "sampling_s": "0",
    },
    "combine_training_corpus": {"root_dir": "together"},
    "corpus_stats": {"clang_path": CLANG, "data_path": "corpus", "output_path": "out/statistics"},
    "train_throughput": {"blocks_dir": "blocks", "output_dir": "out/model", "units": "4", "epochs": "1"},
    "evaluate_throughput": {"blocks_dir": "blocks", "split": "train"},
}
"""Flags with which each succeeds in the folder of `place.make_place`; a mistake replaces one."""

OUTPUT_FLAG = {
    "collect_blocks": "output_dir",
    "deploy": "output",
    "fetch_corpus": "output_dir",
    "extract_ir": "output_dir",
    "generate_default_trace": "output_path",
    "generate_vocab": "output_dir",
    "train_bc": "root_dir",
    "train_locally": "root_dir",
    "evaluate": "output_path",
    "explain": "output_path",
    "optimize": "output",
    "export_policy": "output_path",
    "import_policy": "output_path",
    "search": "output_dir",
    "headroom": "output_dir",
    "screen_options": "output_dir",
    "make_corpus": "output_dir",
    "profile_blocks": "output_dir",
    "corpus_stats": "output_path",
    "train_throughput": "output_dir",
}


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake and its flags; the message contains `words`, such as the name of the file and the remedy."""

    name: str
    tools: tuple[str, ...]
    flags: Mapping[str, str]
    words: tuple[str, ...]
