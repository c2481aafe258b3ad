"""Settings of algorithms that cannot be right are refused when gin is read; without TensorFlow."""

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.tools import gin_settings


@pytest.mark.parametrize(
    ("binding", "complaint"),
    [
        ("dqn.epsilon = 0.1", "epsilon"),
        ("dqn.discount = 1.5", "discount: expected at least 0 and at most 1, found 1.5"),
        ("dqn.last_temperature = 0", "last_temperature: expected a number over 0, found 0"),
        ("dqn.max_decisions = 0", "max_decisions: expected at least 1, found 0"),
        ("reinforce.num_epochs = 3", "num_epochs"),
        ("reinforce.learning_rate = 0", "learning_rate: expected a number over 0, found 0"),
        ("reinforce.averaging = 1", "averaging: expected at least 0 and less than 1, found 1"),
        ("es.optimiser = 'adam'", "optimiser"),
        ("es.optimizer = 'sgd'", "optimizer: expected 'plain', 'momentum', 'adam' or 'trust_region', found 'sgd'"),
        ("es.noise = -1", "noise: expected a number over 0, found -1"),
        ("network.lstm_units = 257", "lstm_units: expected 0 to 256, found 257"),
        ("network.lstm_units = -1", "lstm_units: expected 0 to 256, found -1"),
        ("network.lstm_steps = 0", "lstm_steps: expected 1 to 1024, found 0"),
        ("network.lstm_layers = 1", "lstm_layers"),
        ("ppo.kl_target = -0.1", "kl_target: expected at least 0, found -0.1"),
    ],
)
def test_wrong_settings_are_refused(binding: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        gin_settings.read(gin_settings.of_training(), [], [binding])
