"""The order in which modules are drawn."""

from collections import Counter
from pathlib import Path

from compiler_opt.collect.groups import ModuleSampler
from compiler_opt.corpus.description import Module


def _modules(count: int) -> list[Module]:
    return [Module(f"m{index:02d}", "p", Path("/nowhere")) for index in range(count)]


def test_every_module_comes_once_an_epoch() -> None:
    sampler = ModuleSampler(_modules(10), seed=3)
    drawn = [module.name for position in range(0, 20, 5) for module in sampler.draw(position, 5)]
    assert set(Counter(drawn[:10]).values()) == set(Counter(drawn[10:]).values()) == {1}
    assert drawn[:10] != drawn[10:]


def test_the_position_says_it_all() -> None:
    shuffled = list(reversed(_modules(10)))
    assert ModuleSampler(_modules(10), 3).draw(7, 5) == ModuleSampler(shuffled, 3).draw(7, 5)
    assert ModuleSampler(_modules(10), 3).draw(0, 10) != ModuleSampler(_modules(10), 4).draw(0, 10)


def test_no_module_twice_in_a_draw() -> None:
    sampler = ModuleSampler(_modules(10), seed=3)
    for position in range(30):
        names = [module.name for module in sampler.draw(position, 8)]
        assert len(set(names)) == 8
    assert len(sampler.draw(0, 50)) == 10
