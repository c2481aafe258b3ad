"""Policies with the layers of google/ml-compiler-opt, saved as it saves them: by TF-Agents, and converted to TFLite."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.tensorflow_loading import load_tensorflow, stderr_held

load_tensorflow()
tf: Any = importlib.import_module("tensorflow")
tf_agents: Any = importlib.import_module("tf_agents")
actor_distribution_network: Any = importlib.import_module("tf_agents.networks.actor_distribution_network")
q_network: Any = importlib.import_module("tf_agents.networks.q_network")
actor_policy: Any = importlib.import_module("tf_agents.policies.actor_policy")
greedy_policy: Any = importlib.import_module("tf_agents.policies.greedy_policy")
policy_saver: Any = importlib.import_module("tf_agents.policies.policy_saver")
q_policy: Any = importlib.import_module("tf_agents.policies.q_policy")

ADVICE = "inlining_decision"
DISCARDED = "inlining_default"
"""A feature that its policies are given and do not observe."""


def encoding(quantiles: np.ndarray, transforms: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    """What its networks observe of a feature: transforms of the value's place among the quantiles."""

    def encode(values: Any) -> Any:
        column = tf.expand_dims(values, -1)
        place = tf.raw_ops.Bucketize(input=column, boundaries=quantiles.tolist())
        return tf.concat(transforms(tf.cast(place, tf.float32) / len(quantiles)), axis=-1)

    return encode


def save_original(
    directory: Path,
    observations: Mapping[str, np.ndarray],
    *,
    of_values: bool = False,
    layers: tuple[int, ...] = (40, 40, 20),
    with_root: bool = True,
    num_quantiles: int = 200,
    seed: int = 0,
) -> None:
    """Saves a greedy policy of random weights, which decides either way on about half of the observations.

    Args:
      directory: to save into.
      observations: whose quantiles it observes.
      of_values: as behavioural cloning and DQN save it, by a network of values; otherwise as PPO does.
      layers: units of each hidden layer.
      with_root: whether square roots are among the transforms.
      num_quantiles: of each feature.
      seed: of the weights.
    """
    quantiles = {
        name: np.quantile(values, np.linspace(0, 1, num_quantiles), method="nearest").astype(np.float64)
        for name, values in observations.items()
    }

    def transforms(x: Any) -> list[Any]:
        return [x, x * x, tf.sqrt(x)] if with_root else [x, x * x]

    encoders = {name: tf.keras.layers.Lambda(encoding(values, transforms)) for name, values in quantiles.items()}
    encoders[DISCARDED] = tf.keras.layers.Lambda(lambda values: tf.zeros([*values.shape, 0], tf.float32))
    observation = {name: tf.TensorSpec((), tf.int64, name) for name in encoders}
    time_step = tf_agents.trajectories.time_step_spec(observation, tf.TensorSpec((), tf.float32, "reward"))
    action = tf_agents.specs.BoundedTensorSpec((), tf.int64, 0, 1, name=ADVICE)
    network_class = q_network.QNetwork if of_values else actor_distribution_network.ActorDistributionNetwork
    network = network_class(
        observation,
        action,
        preprocessing_layers=encoders,
        preprocessing_combiner=tf.keras.layers.Concatenate(),
        fc_layer_params=layers,
        activation_fn=tf.keras.activations.relu,
    )
    _set_weights(network, {**observations, DISCARDED: 0 * next(iter(observations.values()))}, of_values, seed)
    if of_values:
        policy = q_policy.QPolicy(time_step, action, network)
    else:
        policy = actor_policy.ActorPolicy(time_step, action, network)
    with warnings.catch_warnings(), scratch_for_libraries():
        # About a distribution in TF-Agents' metadata.
        warnings.filterwarnings("ignore", "Encoding a StructuredValue", UserWarning)
        greedy = greedy_policy.GreedyPolicy(policy)
        policy_saver.PolicySaver(greedy, batch_size=1, use_nest_path_signatures=False).save(str(directory))


def _set_weights(network: Any, observations: Mapping[str, np.ndarray], of_values: bool, seed: int) -> None:
    network.create_variables()
    rng = np.random.default_rng(seed)
    for variable in network.variables:
        scale = np.sqrt(2 / variable.shape[0]) if len(variable.shape) == 2 else 0.1
        variable.assign(rng.normal(0, scale, variable.shape))
    outputs, _ = network(observations, (), ())
    logits = (outputs if of_values else outputs.logits_parameter()).numpy()
    # In the largest gap near the median, so that there are no ties.
    leanings = np.unique(np.quantile(logits[:, 1] - logits[:, 0], np.linspace(0.4, 0.6, 100), method="nearest"))
    gap = int(np.argmax(np.diff(leanings)))
    network.variables[-1].assign_add([0, -leanings[gap : gap + 2].mean()])


def convert_to_tflite(saved_model: Path, output: Path) -> None:
    """Converts a policy as google/ml-compiler-opt does."""
    with stderr_held():
        converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter.allow_custom_ops = True
        output.write_bytes(converter.convert())


def tflite_interpreter(model: Path) -> Any:
    """TFLite's interpreter, which runs all operations of a file."""
    # It warns that it will move to another package, and says how it computes.
    with warnings.catch_warnings(), stderr_held():
        warnings.simplefilter("ignore", UserWarning)
        interpreter = tf.lite.Interpreter(model_content=model.read_bytes())
        interpreter.allocate_tensors()
    return interpreter


def tflite_decisions(model: Path, observations: Mapping[str, np.ndarray]) -> np.ndarray:
    """`[T]`, decided one at a time by TFLite's interpreter."""
    interpreter = tflite_interpreter(model)
    [output] = interpreter.get_output_details()
    inputs = interpreter.get_input_details()
    names = {each["index"]: each["name"].removeprefix("action_").partition(":")[0] for each in inputs}
    decisions = np.empty(len(next(iter(observations.values()))), np.int64)
    for row in range(len(decisions)):
        for each in inputs:
            values = observations.get(names[each["index"]])
            value = 0 if values is None else values[row]
            interpreter.set_tensor(each["index"], np.full(each["shape"], value, each["dtype"]))
        interpreter.invoke()
        decisions[row] = interpreter.get_tensor(output["index"]).item()
    return decisions


def original_decisions(saved_model: Path, observations: Mapping[str, np.ndarray]) -> np.ndarray:
    """`[T]`, decided one at a time by TensorFlow, which loads and runs the whole SavedModel."""
    model: Any = tf.saved_model.load(str(saved_model))
    signature = model.signatures["action"]
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}

    def decide(row: dict[str, Any]) -> Any:
        inputs = {name: tf.reshape(value, [1]) for name, value in row.items()}
        return signature(**inputs, **others, **{DISCARDED: tf.ones([1], tf.int64)})[ADVICE][0]

    function = tf.function(lambda rows: tf.map_fn(decide, rows, fn_output_signature=tf.int64))
    decisions: np.ndarray = function(dict(observations)).numpy()
    return decisions
