"""The mean over the last steps of what is learned, the later the weightier: it decides better than any one of them."""

import dataclasses

import tensorflow as tf
from tf_agents.networks import network

from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head


class AveragedWeights:
    """Of a network's variables.

    Attributes:
      variables: the means, in the order of the network's; for checkpoints.
    """

    def __init__(self, kind: Head, actor: network.DistributionNetwork, decay: float):
        """Begins with what the network is now.

        Args:
          kind: what is decided.
          actor: the network.
          decay: what a step leaves of the mean before it.
        """
        self._kind = kind
        self._actor = actor
        self._average = tf.train.ExponentialMovingAverage(decay)
        self.add()
        self.variables = [self._average.average(variable) for variable in actor.trainable_weights]

    def add(self) -> None:
        """Takes in what the network is now."""
        self._average.apply(self._actor.trainable_weights)

    def restart(self) -> None:
        """Forgets what the network was before."""
        for mean, variable in zip(self.variables, self._actor.trainable_weights, strict=True):
            mean.assign(variable)

    def weights(self) -> NetworkWeights:
        """The means, in the form that decides."""
        values = [variable.numpy() for variable in self.variables]
        current = networks.to_weights(self._actor, self._kind.features, self._kind.quantiles)
        return dataclasses.replace(current, kernels=tuple(values[0::2]), biases=tuple(values[1::2]))
