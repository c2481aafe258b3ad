"""The training loop: collect rollouts, learn from them, validate, checkpoint."""

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.groups import CompileCosts, GroupCollection, RolloutBatch
from compiler_opt.collect.latest_contexts import LatestContexts
from compiler_opt.collect.rollout import check_failures
from compiler_opt.collect.stream import Collector, InTurn, RolloutStream
from compiler_opt.errors import ConfigError, OutputError, told_if_interrupted
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.report.formatting import duration_text
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.best_policy import BestPolicy
from compiler_opt.rl.checkpoints import Checkpoints
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.history import History
from compiler_opt.rl.learner import save_run_policy
from compiler_opt.rl.progress import Plan, Progress
from compiler_opt.rl.time_profile import profile_entry
from compiler_opt.rl.training_run import TrainingRun, log_changed_settings, origin
from compiler_opt.rl.unfinished_policy import UNFINISHED, is_finished, save_unfinished_policy

_LOG = logging.getLogger(__name__)


def train(run: TrainingRun, algorithm: Algorithm) -> NetworkWeights:
    """Trains to the end and saves the policy; killed at any moment, the same call resumes after the last iteration.

    Writes checkpoints, history, summaries, the baseline and the policy into the run's folder. With a validation corpus
    in the run, the policy is the best one on it, see `rl.best_policy`. Before the end, each iteration writes the
    policy so far (`rl.unfinished_policy`); with a validation corpus, each validation does.

    Raises:
      KeyboardInterrupt: it is interrupted; `str()` says how far it was, where the policy is, and how to resume.
      CorpusError: most modules of an iteration fail.
      PolicyError, ConfigError: policy, vocabulary or settings do not suit the run that is resumed.
      OutputError: a checkpoint cannot be written, or the run's folder was moved.
    """
    config = run.config
    if config.max_staleness and not algorithm.off_policy:
        raise ConfigError(
            f"train_eval.max_staleness: expected 0 with the algorithm {config.algorithm}, which learns from rollouts "
            f"of its latest policy only; found {config.max_staleness}"
        )
    checkpoints = Checkpoints(run.root_dir / "checkpoints", **algorithm.checkpointed())
    progress, copies = _start_or_resume(run, algorithm, checkpoints)
    with told_if_interrupted(lambda: _interruption(run, checkpoints)):
        return _train(run, algorithm, checkpoints, progress, copies)


def _train(
    run: TrainingRun,
    algorithm: Algorithm,
    checkpoints: Checkpoints,
    progress: Progress,
    copies: Mapping[str, Any],
) -> NetworkWeights:
    """`train`, from the progress so far and the state of the copies."""
    config = run.config
    latest = LatestContexts(run.problem, run.baseline(), copies)
    sampler, best = run.sampler(), BestPolicy(run)
    # Last, when nothing can be wrong any more: it changes the run's folder.
    history = History(run.root_dir, progress.iteration if progress.iteration else -1)
    if progress.share(config) >= 1 and is_finished(run.root_dir):
        return NetworkWeights.load(run.root_dir / POLICY_DIR)
    measure = run.stopwatch.measure
    policy_now = functools.partial(_policy, run, algorithm, progress, algorithm.policy)
    policy_so_far = functools.partial(_policy, run, algorithm, progress, algorithm.policy_so_far)

    def keep_policy() -> None:
        weights = best.choose(progress.iteration, policy_so_far)
        save_unfinished_policy(run.root_dir, weights, progress.text(config))

    _log_plan(run, progress)
    if not progress.iteration and (start := best.validate(0, policy_now)):
        history.add({"iteration": 0, "compiles": 0, "elapsed_s": 0.0, **start})
        keep_policy()
    plans: deque[Plan] = deque()
    # numpy's threads spin while they wait for one another, on CPUs that the compilers need.
    with threadpool_limits(1, "blas"), _in_place(run.root_dir) as check_place, _collector(run) as collector:
        while progress.share(config) < 1:
            start_s = time.monotonic()
            while not plans or (len(plans) <= config.max_staleness and progress.has_more(config, len(plans))):
                plans.append(Plan.make(run, progress, plans, sampler))
                baseline = latest.baseline if config.counts_copies else run.baseline()
                collector.submit(_collection(run, algorithm, baseline, plans[-1]), f"iteration {plans[-1].number}")
            plan = plans.popleft()
            with measure("collect"):
                batch = collector.next()
            check_failures(batch.failed_modules, len(plan.modules) - len(batch.cut))
            metrics: dict[str, Any] = {"staleness": progress.iteration - plan.num_learned, "cut": len(batch.cut)}
            learn_cpu_s = -time.process_time()
            if batch.groups:
                with measure("learn"):
                    rng, share = np.random.default_rng(plan.seed), progress.share(config)
                    metrics |= algorithm.learn(batch.groups, rng, share)
            metrics["learn_cpu_s"] = learn_cpu_s + time.process_time()
            latest.update(batch.groups)
            compiles_before = progress.compiles
            progress.add(plan, batch, time.monotonic() - start_s)
            if run.validation is not None and progress.is_validated(config, compiles_before):
                with collector.paused(), measure("validate"):
                    validated = best.validate(progress.iteration, policy_now)
                progress.elapsed_s += validated["validation_s"]
                metrics |= validated
            metrics |= profile_entry(batch, run.pool.num_workers, progress.iteration_s, run.stopwatch.take())
            check_place()
            _record(history, progress, batch, run, metrics, algorithm.log_metrics)
            if run.validation is None or "validation_s" in metrics:
                keep_policy()
            checkpoints.save(progress.iteration, _state(run, algorithm, latest, progress))
    weights = best.choose(progress.iteration, policy_now)
    save_run_policy(run.root_dir, weights, run.problem.decision.action_space, run.action_name, run.compiler_features)
    return weights


@contextlib.contextmanager
def _in_place(folder: Path) -> Iterator[Callable[[], None]]:
    """Yields a check that raises OutputError if the folder was moved or removed: a new one would lack its files."""
    moved = OutputError(
        f"{folder}: was moved or removed during the training; move it back, or give its new place as --output_dir, and "
        "start again, to resume after the last iteration"
    )
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        raise moved from None

    def check() -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return
        raise moved

    try:
        yield check
    finally:
        os.close(descriptor)


def _collector(run: TrainingRun) -> Collector:
    config, pool, costs = run.config, run.pool, CompileCosts(run.baseline().scores)
    if not config.max_staleness:
        return InTurn(pool, costs)
    return RolloutStream(pool, costs, int(config.late_share * config.modules_per_iteration(pool.num_workers)))


def _collection(run: TrainingRun, algorithm: Algorithm, baseline: Baseline, plan: Plan) -> GroupCollection:
    policy, problem = algorithm.collection_policy(), run.problem
    return GroupCollection(plan.modules, policy, baseline, problem, seed=plan.seed, indispensable=plan.again)


def _start_or_resume(
    run: TrainingRun, algorithm: Algorithm, checkpoints: Checkpoints
) -> tuple[Progress, dict[str, Any]]:
    """The progress so far, and the state of the copies."""

    def check(state: Mapping[str, Any]) -> None:
        log_changed_settings(run.root_dir, state["settings"], run.settings)
        if state["vocabulary"] != run.vocabulary_fingerprint():
            raise ConfigError(
                f"{run.root_dir}: holds a run with another vocabulary, under which its weights mean something "
                "else; use that one, or another --output_dir"
            )

    state = checkpoints.restore(check)
    if state is None:
        return Progress(), {}
    algorithm.restore(state["algorithm"])
    progress = Progress.from_json(state["progress"])
    _LOG.info("resuming after iteration %d", progress.iteration)
    return progress, state.get("copies", {})


def _state(run: TrainingRun, algorithm: Algorithm, latest: LatestContexts, progress: Progress) -> dict[str, Any]:
    """The state of a checkpoint, without variables."""
    return {
        "settings": dict(run.settings),
        "vocabulary": run.vocabulary_fingerprint(),
        "progress": progress.to_json(),
        "algorithm": algorithm.state(),
        "copies": latest.state(),
    }


def _policy(
    run: TrainingRun, algorithm: Algorithm, progress: Progress, policy: Callable[[], NetworkWeights]
) -> NetworkWeights:
    """The policy as it would be saved now."""
    weights = policy()
    # The warm start's policy, if nothing was learned yet, may be of an unfinished run; this one is its own.
    known = {key: value for key, value in weights.metadata.items() if key != UNFINISHED}
    return dataclasses.replace(weights, metadata={**_metadata(run, algorithm, progress), **known})


def _metadata(run: TrainingRun, algorithm: Algorithm, progress: Progress) -> dict[str, Any]:
    return {
        **origin(run.corpus, run.corpus.modules, run.problem, run.toolchain),
        "method": algorithm.description,
        "iterations": progress.iteration,
        "compiles": progress.compiles,
        "training_minutes": round(progress.elapsed_s / 60, 2),
        "seed": run.config.seed,
    }


def _record(
    history: History,
    progress: Progress,
    batch: RolloutBatch,
    run: TrainingRun,
    metrics: Mapping[str, Any],
    log_metrics: Sequence[tuple[str, str, str]],
) -> None:
    """Adds the iteration to the history and to the log."""
    rewards = {group.module: group.rewards(run.problem) for group in batch.groups}
    by_project: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for group in batch.groups:
        by_project[group.project].append(rewards[group.module])
    all_rewards = np.concatenate(list(rewards.values())) if rewards else np.zeros(1)
    entry: dict[str, Any] = {
        "iteration": progress.iteration,
        "compiles": progress.compiles,
        "elapsed_s": round(progress.elapsed_s, 3),
        "reward_mean": float(all_rewards.mean()),
        "reward_by_project": {name: float(np.concatenate(parts).mean()) for name, parts in sorted(by_project.items())},
        **metrics,
        "failures": len(batch.failures),
        "decisions": sum(len(trajectory) for group in batch.groups for trajectory in group.trajectories()),
        "compiles_per_s": batch.num_compiles / progress.iteration_s,
        "collect_cpu_s": batch.cpu_s,
    }
    history.add(entry, all_rewards)
    for failure in batch.failures:
        _LOG.warning("rollout failed: %s", failure)
    for reason in batch.too_few:
        _LOG.warning("nothing learned from %s", reason)
    _LOG.info(
        "iteration %d: reward %+.2f%%, %s, %.1f compiles/s, %d failures, %s so far, about %s left",
        progress.iteration,
        100 * entry["reward_mean"],
        ", ".join(f"{label} {metrics.get(key, 0.0):{form}}" for key, label, form in log_metrics),
        entry["compiles_per_s"],
        entry["failures"],
        duration_text(progress.elapsed_s),
        duration_text(progress.left_s(run.config)),
    )


def _log_plan(run: TrainingRun, progress: Progress) -> None:
    """Logs how long the run may take, by the time that the default's compilations took, unless its time is limited."""
    config, baseline = run.config, run.baseline()
    if config.max_minutes or progress.share(config) >= 1:
        return
    num_measured = (len(baseline.scores) + len(baseline.failures)) * (1 + len(run.problem.context_policies))
    drawn = min(config.modules_per_iteration(run.pool.num_workers), len(baseline.scores) - len(baseline.undecided))
    compiles = drawn * config.rollouts_per_module
    left = (config.num_iterations - progress.iteration) * compiles
    if config.max_compiles:
        left = min(left, config.max_compiles - progress.compiles)
    _LOG.info(
        "%s done; the others, of %d compilations each, may take %s with %d workers; --minutes "
        "(train_eval.max_minutes) limits the time",
        progress.text(config),
        compiles,
        duration_text(left * baseline.cpu_s / num_measured / run.pool.num_workers),
        run.pool.num_workers,
    )


def _interruption(run: TrainingRun, checkpoints: Checkpoints) -> str:
    """How far an interrupted run was, what its policy is, and how to resume it."""
    state = checkpoints.latest_state()
    progress = Progress() if state is None else Progress.from_json(state["progress"])
    how_far, policy_dir = progress.text(run.config), run.root_dir / POLICY_DIR
    if not policy_dir.exists():
        return f"{how_far}, and no policy yet; the same command resumes"
    entries, _ = read_entries(run.root_dir / HISTORY_FILE)
    rewards = [entry["reward_mean"] for entry in entries if 0 < entry["iteration"] <= progress.iteration]
    compared = ""
    if run.validation is not None:
        compared = ", the best one on the validation corpus so far"
    elif rewards and rewards[-1] >= 0:
        compared = f"; the last iteration's rollouts are {rewards[-1]:.2%} better than the default"
    elif rewards:
        compared = (
            f"; the last iteration's rollouts, which explore, are {-rewards[-1]:.2%} worse than the default: "
            "compiler_opt evaluate tells whether the policy is"
        )
    return f"{how_far}; the policy is in {policy_dir}{compared}; the same command resumes"
