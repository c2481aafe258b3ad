"""The shape of the networks that are trained."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of the networks.

    Attributes:
      fc_layer_params: units of each hidden layer of the policy.
      value_fc_layer_params: units of each hidden layer of the value network, which only learns.
    """

    fc_layer_params: tuple[int, ...] = (64, 64)
    value_fc_layer_params: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        for name in ("fc_layer_params", "value_fc_layer_params"):
            if any(units < 1 for units in getattr(self, name)):
                raise ValueError(f"{name}: expected units of at least 1, found {getattr(self, name)}")
