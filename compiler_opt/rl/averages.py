"""Exponential moving averages of a network's weights, which decide better than the weights of any one step."""

import dataclasses

import tensorflow as tf
from tf_agents.networks import network

from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head


class AveragedWeights:
    """The average of an actor's variables.

    Attributes:
      variables: the averages, in the order of the actor's variables; for checkpoints.
    """

    def __init__(self, head: Head, actor: network.DistributionNetwork, decay: float):
        """Starts from the actor's current weights; each `add` keeps `decay` of the average before it."""
        self._head = head
        self._actor = actor
        self._average = tf.train.ExponentialMovingAverage(decay)
        self.add()
        self.variables = [self._average.average(variable) for variable in actor.trainable_weights]

    def add(self) -> None:
        """Adds the actor's current weights."""
        self._average.apply(self._actor.trainable_weights)

    def restart(self) -> None:
        """Restarts from the actor's current weights."""
        for mean, variable in zip(self.variables, self._actor.trainable_weights, strict=True):
            mean.assign(variable)

    def warm_start(self, weights: NetworkWeights) -> None:
        """Loads a policy's weights into the actor and restarts from them.

        Raises:
          PolicyError: they have another shape.
        """
        networks.assign(self._actor, weights)
        self.restart()

    def weights(self) -> NetworkWeights:
        """The average, in the form that decides."""
        values = [variable.numpy() for variable in self.variables]
        current = self._head.to_weights(self._actor)
        return dataclasses.replace(current, kernels=tuple(values[0::2]), biases=tuple(values[1::2]))
