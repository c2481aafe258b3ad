"""Penalties of events, compared with those that made the measurements, and with others nearby."""

import numpy as np
import pytest

from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS
from studies.simulation_with_penalties import SimulationWithPenalties


def simulated_and_events() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    return generator.uniform(1, 20, 300), generator.exponential([0.5, 0.5, 0.001, 0.1], (300, 4))


def test_penalties_are_found() -> None:
    simulated, events = simulated_and_events()
    baseline = SimulationWithPenalties(simulated, events, 0.4 * simulated + events @ [0, 5, 80, 7])
    assert baseline.scale == pytest.approx(0.4)
    assert list(baseline.penalties) == list(ANNOTATIONS)
    assert list(baseline.penalties.values()) == pytest.approx([0, 5, 80, 7], abs=1e-9)
    # Unknown events count as on average.
    average = 0.4 * 10 + 5 * events[:, 1].mean() + 80 * events[:, 2].mean() + 7 * events[:, 3].mean()
    assert baseline.predict(np.array([10.0]), np.full((1, 4), np.nan)) == pytest.approx([average])


def test_penalties_are_the_best_that_are_not_negative() -> None:
    simulated, events = simulated_and_events()
    generator = np.random.default_rng(3)
    # Instruction misses seem to make a block faster, and nobody has counted half of the last-level misses.
    measured = 2 * simulated + events @ [-0.5, 5, 80, 7]
    events[generator.random(300) < 0.5, 2] = np.nan
    baseline = SimulationWithPenalties(simulated, events, measured)
    assert baseline.penalties["instruction_misses"] == 0
    inputs = np.column_stack([simulated, np.where(np.isnan(events), np.nanmean(events, axis=0), events)])

    def squares(factors: np.ndarray) -> float:
        return float(((inputs @ factors / measured - 1) ** 2).sum())

    found = np.array([baseline.scale, *baseline.penalties.values()])
    nearby = np.maximum(found + generator.normal(0, 1, (1000, 5)) * [1e-3, 0.1, 0.1, 5, 0.1], 0)
    assert squares(found) <= min(map(squares, nearby))


def test_events_that_nobody_counted_have_no_penalty() -> None:
    simulated, events = simulated_and_events()
    baseline = SimulationWithPenalties(simulated, np.full_like(events, np.nan), 2.5 * simulated)
    assert baseline.predict(np.array([2.0]), np.ones((1, 4))) == pytest.approx([5.0])
