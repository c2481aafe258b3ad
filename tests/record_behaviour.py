"""Records what each method does, as a hash of every file it writes, to compare before and after a refactoring.

What differs between BEFORE.json and BEFORE_AGAIN.json is not repeatable, and is not compared:

    python -m tests.record_behaviour record FILE.json [REGEX]    # all cases or some; goes on where it ended
    python -m tests.record_behaviour digest FILE.json            # hashes the files of these cases again, runs nothing
    python -m tests.record_behaviour compare BEFORE.json AFTER.json [BEFORE_AGAIN.json]
"""

import csv
import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests import programs, small_corpus, small_project
from tests.optimize import speed_programs

PLACE = Path("/tmp/mlgo-behaviour")  # always the same, since files name others; remove it before each recording
CLANGS = {name: str(shutil.which(name)) for name in ("clang-22", "clang-19")}
METHODS = {
    "inlining": "bc_max dqn es flips ppo reinforce",
    "regalloc_eviction": "bc_max dqn es es_of_a_rule ppo reinforce",
    "regalloc_priority": "bc_max es ppo reinforce",
}
ROLLOUTS = "train_eval.rollouts_per_module="
SMALL = f"train_eval.num_iterations=2 train_eval.num_modules=3 network.fc_layer_params=(8,) {ROLLOUTS}2"
START = f"--warmstart_policy_dir={PLACE}/TASK"  # with LLVM's features; the vocabulary has the plugin's, too
VALIDATED = f"train_eval.validation_iterations=1 --validation_path={PLACE}/CLANG/TASK-other"
OWN = {
    "flips": f"flips.first_samples=1 flips.learn_every=1 flips.networks=1 flips.num_epochs=2 {ROLLOUTS}3",
    "es_of_a_rule": "es.cloning_epochs=2",
    "bc_max": f"bc_max.clone_every=1 {START}",
}
VARIANTS = {  # the method, gin bindings and flags; the first for register allocation, the others for inlining
    "by_cost": ("ppo", f"{VALIDATED} --cost_model=instructions"),
    "validated": ("ppo", f"{VALIDATED} {START}"),
    "recurrent": ("ppo", "network.lstm_units=4 network.lstm_steps=8"),
    "moving_average": ("ppo", "advantages.kind='moving_average' ppo.value_pred_loss_coef=0.5"),
    "novelty": ("ppo", "novelty.weight=0.1"),
    "log_credit_channel": ("reinforce", f"advantages.squash='log' train_eval.backend='channel' {START}"),
    "trust_region": ("es", f"es.optimizer='trust_region' {ROLLOUTS}4"),
}
TIMED = re.compile(r"_s$|^wall$|started_at|minutes$|^curve$|^sha256$")  # keys; the last is a file's own checksum
SKIPPED = re.compile(r"summaries|variables/|build-\w+/|/bin/|/logs/|checksums|_train_.*(mlgo|md)$|\.(html|svg|pb|so)$")


def cases() -> Iterator[tuple[str, list[str]]]:  # names and command lines; @ is the case's folder, ~ a space
    for task in METHODS:
        formats = "--format=native,cpp,release_model,tflite"
        yield f"{task}_export", [f"tools.export_policy --policy_path={PLACE}/{task} {formats} --output_dir=@"]
    for clang, path in CLANGS.items():
        for task, methods in METHODS.items():
            at, gin, policy = f"{clang}_{task}", f"--gin_files=gin_configs/{task}", f"--policy_path={PLACE}/{task}"
            data = f"--data_path={PLACE}/{clang}/{task} --clang_path={path} --num_workers=1"
            vocabulary = f"--vocab_path=compiler_opt/rl/{'regalloc' if task == 'regalloc_eviction' else task}/vocab"
            evaluate = f"tools.evaluate {data} {policy} --compile_task={task} --output_dir=@ --keep_objects=@/objects"
            for backend, baselines in (("plugin", "--baselines="), ("channel", "")):  # the plugin has no baselines
                yield f"{at}_evaluate_{backend}", [f"{evaluate} --gin_bindings=rollout.backend='{backend}' {baselines}"]
            trace = f"tools.generate_default_trace {data} --compile_task={task} --output_path=@/trace"
            clone = f"rl.train_bc {gin}/behavioral_cloning_nn_agent.gin --data_path=@/trace --vocab_path=@/vocabulary"
            quantiles = "tools.generate_vocab --input=@/trace --output_dir=@/vocabulary"
            yield (
                f"{at}_pipeline",
                [trace, quantiles, f"{clone} --output_dir=@/c --gin_bindings=train_eval.num_epochs=2"],
            )
            if task == "inlining":
                yield f"{at}_search", [f"tools.search {data} {policy} --budget=12 --output_dir=@"]
                for tool in ("explain", "feature_importance"):
                    yield f"{at}_{tool}", [f"tools.{tool} {data} {policy} --output_dir=@"]
            else:
                for model in ("RegAllocScore", "llvm-mca"):
                    yield f"{at}_evaluate_{model}", [f"{evaluate} --cost_model={model} --baselines="]
            for name in (*methods.split(), *(name for name in VARIANTS if (name != "by_cost") == (task == "inlining"))):
                method, words = VARIANTS.get(name, (name, ""))
                words = f"{SMALL} {OWN.get(method, '')} {words}".replace("CLANG", clang).replace("TASK", task)
                given = " ".join(each if each.startswith("--") else f"--gin_bindings={each}" for each in words.split())
                given += "" if "--warmstart" in given else f" {vocabulary}"
                training = f"rl.train_locally {data} {gin}/{method}_nn_agent.gin --output_dir=@ {given}"
                yield f"{at}_train_{name}", [training]
        size = f"--build_dir={PLACE}/build --reuse_policy={PLACE}/inlining --search_minutes=0 --clang_path={path}"
        yield f"{clang}_optimize_size", [f"tools.optimize {size} --output_dir=@/o"]
    build = f"--compile_commands={PLACE}/speed/compile_commands.json --link_command=cc~bench.o~work.o~-o~bench"
    speed = "--objective=speed --benchmark=linked/bench --bytes_per_percent=20000 --minutes=3 --clang_path=clang-22"
    yield "clang-22_optimize_speed", [f"tools.optimize {build} {speed} --output_dir=@/o"]  # needs libclang-rt-22-dev


def run(line: str, place: Path) -> None:
    program, *flags = (word.replace("@", str(place)).replace("~", " ") for word in line.split())
    cache = {"XDG_CACHE_HOME": f"{PLACE}/cache"}
    result = programs.run(f"compiler_opt.{program}", *flags, environment=cache, timeout_s=10_000)
    assert result.returncode == 0, f"{line}\n{result.stderr[-2000:]}"


def prepare() -> None:
    for task in METHODS:
        run(f"tools.generate_test_model --compile_task={task} --output_dir=@/{task} --fc_layer_params=8", PLACE)
        sources, level = (small_corpus.SOURCES, "Oz") if task == "inlining" else (small_corpus.BUSY_SOURCES, "O2")
        for clang, kind in ((clang, kind) for clang in CLANGS for kind in ("", "-other")):
            (corpus := PLACE / clang / f"{task}{kind}").mkdir(parents=True)
            renamed = {name.replace("/", f"{kind}/"): text for name, text in sources.items()}
            small_corpus.make_corpus(corpus, CLANGS[clang], renamed, level)
    speed_programs.database(PLACE / "speed")
    small_project.configure(small_project.make_small_project(PLACE / "source"), PLACE / "build")


def untimed(items: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in items.items() if not TIMED.search(key)}


def parsed(data: bytes) -> Any:
    try:
        return json.loads(data, object_hook=untimed)
    except ValueError:
        return data.hex()


def digest(path: Path) -> str:
    data = path.read_bytes()
    content: Any = [parsed(part) for part in (data.splitlines() if path.suffix == ".jsonl" else [data])]
    if path.suffix == ".csv":
        content = [untimed(row) for row in csv.DictReader(path.open())]
    elif path.suffix == ".npz":
        content = {name: parsed(array.tobytes()) for name, array in np.load(path).items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def digests(place: Path) -> dict[str, str]:
    paths = [path for path in sorted(place.rglob("*")) if path.is_file() and not SKIPPED.search(str(path))]
    assert paths, f"{place}: expected files, found none"
    return {str(path.relative_to(place)): digest(path) for path in paths}


def record(file: Path, recorded: dict[str, Any], only: str = "") -> None:
    if not (PLACE / "build").exists():
        prepare()
    for name, lines in ((name, lines) for name, lines in cases() if name not in recorded and re.search(only, name)):
        shutil.rmtree(place := PLACE / "cases" / name, ignore_errors=True)
        place.mkdir(parents=True)
        for line in lines:
            run(line, place)
        recorded[name] = digests(place)
        file.write_text(json.dumps(recorded, indent=1))
        print(f"{time.strftime('%X')} {name}: {len(recorded[name])} files", flush=True)


def compare(before: dict[str, Any], after: dict[str, Any], again: dict[str, Any]) -> str | None:
    both = [(name, file) for name in before if name in after for file in sorted({**before[name], **after[name]})]
    stable = [(name, file) for name, file in both if before[name].get(file) == again.get(name, before[name]).get(file)]
    differing = [f"{name}: {file}" for name, file in stable if before[name].get(file) != after[name].get(file)]
    cases_of_both = f"{len(before.keys() & after.keys())} of {len(before)} cases"
    print(*differing, f"{cases_of_both}; {len(stable)} of their {len(both)} files are repeatable", sep="\n")
    return f"{len(differing)} files differ" if differing else None


if __name__ == "__main__":
    what, path, *more = sys.argv[1:]
    if what == "compare":
        sys.exit(compare(*(json.loads(Path(each).read_text()) for each in (path, *more, path)[:3])))
    recorded: dict[str, Any] = json.loads(Path(path).read_text()) if Path(path).exists() else {}
    if what == "record":
        record(Path(path), recorded, *more)
    elif what == "digest":
        Path(path).write_text(json.dumps({name: digests(PLACE / "cases" / name) for name in recorded}, indent=1))
