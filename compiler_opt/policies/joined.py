"""One network of several, side by side: their mean, or a choice between them."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights

_SURE = 16.0
"""The logit of what a constant policy does; the other's is as far below 0."""


def mean_network(networks: Sequence[NetworkWeights]) -> NetworkWeights:
    """One network with the mean of several networks' outputs: their layers side by side.

    The margin is 0: the mean differs less from the default than each network does.

    Raises:
      PolicyError: the networks differ in features, quantiles or number of layers, or one is recurrent.
    """
    first, count = networks[0], len(networks)
    _check_alike(networks, "mean of policies")
    if any(len(network.kernels) != len(first.kernels) for network in networks):
        raise PolicyError("mean of policies: their numbers of layers differ; expected policies of alike trainings")
    layers = list(zip(*(network.kernels for network in networks), strict=True))
    biases = [np.concatenate(layer) for layer in zip(*(network.biases for network in networks), strict=True)]
    biases[-1] = np.mean([network.biases[-1] for network in networks], axis=0)
    if len(layers) == 1:
        kernels = [np.mean(layers[0], axis=0)]
    else:
        # They share inputs; in later layers they are separate.
        kernels = [np.concatenate(layers[0], axis=1), *(_block_diagonal(layer) for layer in layers[1:-1])]
        kernels.append(np.concatenate(layers[-1], axis=0) / count)
    return dataclasses.replace(
        first,
        kernels=tuple(kernel.astype(np.float32) for kernel in kernels),
        biases=tuple(bias.astype(np.float32) for bias in biases),
        margin=0.0,
    )


def constant_network(like: NetworkWeights, action: int) -> NetworkWeights:
    """A network that always takes this one of two actions, for `gated_network`: it observes what another one does.

    Raises:
      PolicyError: the other network is not for two actions, or its margin is so large that it always abstains.
    """
    if len(like.biases[-1]) != 2:
        raise PolicyError("constant policy: expected to combine it with policies for two actions, such as inlining")
    if like.margin >= 2 * _SURE:
        raise PolicyError(f"constant policy: expected a margin below {2 * _SURE:g}, found {like.margin:g}")
    logits = np.array([-1, 1], np.float32) * (_SURE if action else -_SURE)
    kernels = (np.zeros((len(like.kernels[0]), 1), np.float32), np.zeros((1, 2), np.float32))
    return dataclasses.replace(like, kernels=kernels, biases=(np.zeros(1, np.float32), logits))


def gated_network(networks: Sequence[NetworkWeights], feature: str, thresholds: Sequence[float]) -> NetworkWeights:
    """One network whose outputs are those of one of N networks, chosen by the value of a feature.

    It is the first network below the first threshold, the second from there to below the second threshold, and so on.
    The networks lie side by side. Units of the first layer say on which side of each threshold the value is, exactly 0
    on one side; through them, the last hidden layer's units of all networks but the chosen one are 0. So the outputs
    are exactly those of the chosen network, except where an evaluator adds in another order (the native one does not).

    Args:
      networks: with the same features, quantiles and margin; at least one hidden layer each.
      feature: the feature. If the networks observe it, the thresholds must be among its quantiles.
      thresholds: `[N - 1]`, ascending.

    Raises:
      PolicyError: the networks or thresholds are not as described.
    """
    _check_alike(networks, "combined policies")
    if len(thresholds) != len(networks) - 1 or not all(map(np.less, thresholds, thresholds[1:])):
        raise PolicyError(
            f"combined policies: expected {len(networks) - 1} ascending thresholds for {len(networks)} policies, found "
            f"{', '.join(f'{threshold:g}' for threshold in thresholds) or 'none'}"
        )
    if len({network.margin for network in networks}) > 1:
        margins = ", ".join(f"{network.margin:g}" for network in networks)
        raise PolicyError(f"combined policies: their margins differ ({margins}); expected the same of all")
    if any(len(network.kernels) < 2 for network in networks):
        raise PolicyError("combined policies: expected networks with hidden layers, found one without")
    observed = _observing(networks[0], feature, thresholds)
    middles, scales = zip(*(_between(observed, feature, threshold) for threshold in thresholds), strict=True)
    depth = max(3, *(len(network.kernels) for network in networks))
    deep = [_deepened(network, depth) for network in networks]
    count, first_inputs = len(networks), len(TRANSFORMS) * len(observed.features)
    # Units `at or above` each threshold, then `below` each: over 0 on that side, else 0.
    sides = np.zeros((first_inputs, 2 * (count - 1)))
    sides[len(TRANSFORMS) * observed.features.index(feature)] = [*scales, *np.negative(scales)]
    side_biases = np.multiply([*scales, *np.negative(scales)], [*np.negative(middles), *np.negative(middles)])
    # [2 (N - 1), N]: which sides exclude each network.
    excludes = np.zeros((2 * (count - 1), count))
    for number in range(count - 1):
        excludes[number, : number + 1] = 1
        excludes[count - 1 + number, number + 1 :] = 1
    inputs = [np.pad(network.kernels[0], ((0, first_inputs - len(network.kernels[0])), (0, 0))) for network in deep]
    kernels = [np.concatenate([sides, *inputs], axis=1)]
    biases = [np.concatenate([side_biases, *(network.biases[0] for network in deep)])]
    for layer in range(1, depth - 2):
        kernels.append(_block_diagonal([np.eye(len(excludes)), *(network.kernels[layer] for network in deep)]))
        biases.append(np.concatenate([np.zeros(len(excludes)), *(network.biases[layer] for network in deep)]))
    # A unit for each network's last bias, 1 if the network is chosen; then the networks' units.
    gates = [2 * np.eye(count), *(np.full((1, len(network.biases[-2])), _bound(network)) for network in deep)]
    closing = -excludes @ np.concatenate([gates[0], _block_diagonal(gates[1:])], axis=1)
    blocks = _block_diagonal([network.kernels[-2] for network in deep])
    kernels.append(np.concatenate([closing, np.pad(blocks, ((0, 0), (count, 0)))]))
    biases.append(np.concatenate([np.ones(count), *(network.biases[-2] for network in deep)]))
    last_biases = [network.biases[-1] for network in deep]
    kernels.append(np.concatenate([last_biases, *(network.kernels[-1] for network in deep)]))
    biases.append(np.zeros(len(last_biases[0])))
    with np.errstate(over="ignore"):
        return dataclasses.replace(
            observed,
            kernels=tuple(kernel.astype(np.float32) for kernel in kernels),
            biases=tuple(bias.astype(np.float32) for bias in biases),
        )


def _check_alike(networks: Sequence[NetworkWeights], what: str) -> None:
    first = networks[0]
    if any(network.is_recurrent for network in networks):
        raise PolicyError(f"{what}: expected networks without a recurrent layer (network.lstm_units = 0), found one")
    for other in networks[1:]:
        theirs = dict(zip(other.features, other.quantiles, strict=True))
        unshared = [
            name for name in (*first.features, *other.features) if name not in first.features or name not in theirs
        ]
        unequal = [
            name
            for name, quantiles in zip(first.features, first.quantiles, strict=True)
            if not np.array_equal(quantiles, theirs.get(name, quantiles))
        ]
        for differing, names in (("features", unshared), ("vocabularies", unequal)):
            if names:
                raise PolicyError(
                    f"{what}: their {differing} differ ({len(names)}, such as {names[0]!r}); expected policies with "
                    "the same features and vocabulary: train one again with the other's features and --vocab_path"
                )
        for differing, is_same in (
            ("orders of features", other.features == first.features),
            ("numbers of outputs", len(other.biases[-1]) == len(first.biases[-1])),
        ):
            if not is_same:
                raise PolicyError(f"{what}: their {differing} differ; expected policies of alike trainings")


def _observing(network: NetworkWeights, feature: str, thresholds: Sequence[float]) -> NetworkWeights:
    """The network with a feature that it may not have observed, divided by the thresholds."""
    if feature in network.features:
        return network
    kernel = np.pad(network.kernels[0], ((0, len(TRANSFORMS)), (0, 0)))
    return dataclasses.replace(
        network,
        features=(*network.features, feature),
        quantiles=(*network.quantiles, np.array(thresholds, np.float64)),
        kernels=(kernel, *network.kernels[1:]),
    )


def _between(network: NetworkWeights, feature: str, threshold: float) -> tuple[float, float]:
    """A quantile rank between those below and from the threshold on, and a factor by which both are 2 or more away.

    Raises:
      PolicyError: the threshold is not among the feature's quantiles.
    """
    quantiles = network.quantiles[network.features.index(feature)]
    below = int(np.searchsorted(quantiles, threshold, "left"))
    reached = int(np.searchsorted(quantiles, threshold, "right"))
    if below == reached:
        near = np.unique(quantiles[max(0, below - 1) : below + 1])
        raise PolicyError(
            f"combined policies: they observe {feature!r}, but the threshold {threshold:g} is not in their vocabulary; "
            f"expected one of its quantiles, such as {' or '.join(f'{value:g}' for value in near)}"
        )
    return (below + reached) / 2 / len(quantiles), 4 * len(quantiles) / (reached - below)


def _deepened(network: NetworkWeights, depth: int) -> NetworkWeights:
    """The same function with more layers: those added leave the last hidden layer's units as they are."""
    added, width = depth - len(network.kernels), len(network.biases[-2])
    identity, zeros = np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
    return dataclasses.replace(
        network,
        kernels=(*network.kernels[:-1], *[identity] * added, network.kernels[-1]),
        biases=(*network.biases[:-1], *[zeros] * added, network.biases[-1]),
    )


def _bound(network: NetworkWeights) -> float:
    """What no unit of the last hidden layer exceeds, for any input."""
    bounds = np.ones(len(network.kernels[0]))
    for kernel, bias in zip(network.kernels[:-1], network.biases[:-1], strict=True):
        bounds = np.maximum(bounds @ np.maximum(kernel.astype(np.float64), 0) + bias, 0)
    return float(bounds.max())


def _block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    return np.block(
        [
            [block if row == column else np.zeros((len(block), other.shape[1])) for column, other in enumerate(blocks)]
            for row, block in enumerate(blocks)
        ]
    )
