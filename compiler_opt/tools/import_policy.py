"""Imports a policy that google/ml-compiler-opt has trained, so that it runs with a stock clang.

    compiler_opt import_policy --policy_path=$OUTPUT_DIR/saved_policy --output_dir=$POLICY
    compiler_opt deploy --policy_path=$POLICY --output_dir=$PREFIX

It takes greedy policies for inlining that observe quantile ranks and consist of dense layers, as a SavedModel or as
TFLite; others are refused, with what was found. The model's decisions are compared with those of the imported policy.
No runtime is given the model: for this comparison, numpy evaluates the arithmetic that leads to its decision, see
`importing/graph.py`.
"""

from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.errors import PolicyError
from compiler_opt.files import check_folder_writable, printable
from compiler_opt.tensorflow_loading import load_tensorflow
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = shared_flags.required_path(
    "policy_path", "The policy to import: a folder with saved_model.pb, or a file such as model.tflite."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder of the new policy, which is replaced if it exists.")
_TRACE_PATH = shared_flags.path(
    "trace_path", "A trace whose observations are compared; by default, made-up ones that reach all quantiles."
)
_NUM_OBSERVATIONS = flags.DEFINE_integer(
    "num_observations", 10_000, "How many observations to compare, or the first ones of a trace.", 1, 1_000_000
)


@entry_point.command
def entry() -> None:
    output: Path = _OUTPUT_DIR.value
    source: Path = _POLICY_PATH.value
    if output.resolve() == source.resolve():
        raise PolicyError(f"--output_dir={output}: is the policy to import; expected another folder")
    if not source.exists():
        raise PolicyError(f"{source}: expected the folder of a policy, or a TFLite file, found none")
    check_folder_writable(output.parent, naming=output)
    load_tensorflow()
    from compiler_opt.importing import imported_policy

    policy = imported_policy.read_policy(source)
    if _TRACE_PATH.value is not None:
        observations, whose = _recorded(_TRACE_PATH.value, policy.weights.features), f"of {_TRACE_PATH.value}"
    else:
        observations = imported_policy.made_up_observations(policy.weights, _NUM_OBSERVATIONS.value)
        whose = "around its quantiles"
    comparison = imported_policy.compare(policy, observations)
    imported_policy.save_imported(policy, output)
    layers = "-".join(str(len(bias)) for bias in policy.weights.biases)
    print(
        f"{printable(source)}: {policy.model.form}, {len(policy.weights.features)} features, dense layers {layers}\n"
        f"  decides alike on {comparison.num_observations - comparison.num_ties} of {comparison.num_observations} "
        f"observations {printable(whose)}, of which {comparison.num_ones} are 1"
        + (f"; on {comparison.num_ties}, both logits are equal up to rounding" if comparison.num_ties else "")
        + f"\n{printable(output)}: the policy; to use it: compiler_opt deploy "
        f"--policy_path={printable(output)} --output_dir=PREFIX"
    )


def _recorded(path: Path, features: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The first observations of a trace, of those features of a policy that it has."""
    from compiler_opt.rl.trace_files import Trace

    trace = Trace(path)
    known = [name for name in features if name in {spec.name for spec in trace.features}]
    parts: list[dict[str, np.ndarray]] = []
    count = 0
    for batch in trace.batches(known):
        parts.append({name: batch.features[name].reshape(-1) for name in known})
        count += len(batch)
        if count >= _NUM_OBSERVATIONS.value:
            break
    return {name: np.concatenate([part[name] for part in parts])[: _NUM_OBSERVATIONS.value] for name in known}


if __name__ == "__main__":
    entry()
