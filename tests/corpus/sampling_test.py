"""The order in which modules are drawn."""

from collections import Counter
from pathlib import Path

import pytest

from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import ProjectSampler, UniformSampler, WeightedSampler, make_sampler, project_weights
from compiler_opt.errors import ConfigError, CorpusError


def _modules(count: int) -> list[Module]:
    return [Module(f"m{index:02d}", "p", Path("/nowhere")) for index in range(count)]


def test_every_module_comes_once_an_epoch() -> None:
    sampler = UniformSampler(_modules(10), seed=3)
    drawn = [module.name for position in range(0, 20, 5) for module in sampler.draw(position, 5)]
    assert set(Counter(drawn[:10]).values()) == set(Counter(drawn[10:]).values()) == {1}
    assert drawn[:10] != drawn[10:]


def test_draws_depend_on_seed_and_position_only() -> None:
    shuffled = list(reversed(_modules(10)))
    assert UniformSampler(_modules(10), 3).draw(7, 5) == UniformSampler(shuffled, 3).draw(7, 5)
    assert UniformSampler(_modules(10), 3).draw(0, 10) != UniformSampler(_modules(10), 4).draw(0, 10)


def test_no_module_twice_in_a_draw() -> None:
    sampler = UniformSampler(_modules(10), seed=3)
    for position in range(30):
        names = [module.name for module in sampler.draw(position, 8)]
        assert len(set(names)) == 8
    assert len(sampler.draw(0, 50)) == 10


def _in_projects(**sizes: int) -> list[Module]:
    return [Module(f"{p}/m{i}", p, Path("/nowhere")) for p, size in sizes.items() for i in range(size)]


def test_projects_come_equally_often_and_their_modules_in_turn() -> None:
    sampler = ProjectSampler(_in_projects(large=6, middle=3, small=1), seed=3)
    drawn = [sampler.draw(position, 1)[0] for position in range(36)]
    assert Counter(module.project for module in drawn) == {"large": 12, "middle": 12, "small": 12}
    assert set(Counter(module.name for module in drawn if module.project == "large").values()) == {2}
    assert set(Counter(module.name for module in drawn if module.project == "middle").values()) == {4}


def test_a_draw_of_projects_has_no_module_twice_and_depends_on_seed_and_position_only() -> None:
    modules = _in_projects(large=6, middle=3, small=1)
    sampler = ProjectSampler(modules, seed=3)
    for position in range(20):
        drawn = sampler.draw(position, 5)
        assert len({module.name for module in drawn}) == 5
        assert drawn == ProjectSampler(modules[::-1], 3).draw(position, 5)
    assert {module.name for module in sampler.draw(4, 99)} == {module.name for module in modules}
    assert any(sampler.draw(p, 5) != ProjectSampler(modules, 4).draw(p, 5) for p in range(3))


def test_weights_of_projects() -> None:
    counts = {"large": 90, "small": 10, "none": 0}
    assert project_weights(counts, 0.0) == {"large": 1.0, "small": 1.0, "none": 1.0}
    alike = project_weights(counts, 1.0)
    # 50 of 100 decisions' weight each.
    assert alike["large"] * 90 == pytest.approx(50)
    assert alike["small"] * 10 == pytest.approx(50)
    between = project_weights(counts, 0.5)
    assert between["large"] * 90 + between["small"] * 10 == pytest.approx(100)
    assert between["small"] / between["large"] == pytest.approx(3)  # The square root of 90 / 10.
    assert project_weights({}, 1.0) == {}


def _weight(module: Module) -> float:
    """Counts 0 for the first module, 1 for the second and so on."""
    return int(module.name[1:])


def test_chances_are_in_proportion_to_the_weights() -> None:
    sampler = WeightedSampler(_modules(5), 3, _weight)
    counts = Counter(sampler.draw(position, 1)[0].name for position in range(2000))
    assert "m00" not in counts
    for number in range(1, 5):
        # 2,000 draws: standard deviation of at most 22.
        assert abs(counts[f"m{number:02d}"] - 2000 * number / 10) < 100


def test_weighted_draws_depend_on_seed_and_position_only() -> None:
    shuffled = list(reversed(_modules(10)))
    sampler = WeightedSampler(_modules(10), 3, _weight)
    assert sampler.draw(7, 5) == WeightedSampler(shuffled, 3, _weight).draw(7, 5)
    assert sampler.draw(7, 5) == sampler.draw(7, 5)
    assert sampler.draw(7, 5) != sampler.draw(12, 5)
    assert sampler.draw(7, 5) != WeightedSampler(_modules(10), 4, _weight).draw(7, 5)


def test_no_module_twice_and_none_without_weight() -> None:
    sampler = WeightedSampler(_modules(10), 3, _weight)
    for position in range(20):
        names = {module.name for module in sampler.draw(position, 50)}
        assert names == {f"m{number:02d}" for number in range(1, 10)}


def test_samplers_by_name(tmp_path: Path) -> None:
    modules = [Module(f"m{number}", "p", tmp_path) for number in range(3)]
    for number, module in enumerate(modules):
        module.bitcode_path.write_bytes(bytes(1000 * number))
    by_size = Counter(make_sampler("size", modules, 1).draw(position, 1)[0].name for position in range(600))
    assert by_size.keys() == {"m1", "m2"}
    assert 1.6 < by_size["m2"] / by_size["m1"] < 2.5
    by_decisions = make_sampler("decisions", modules, 1, lambda: {"m0": 7, "m1": 0})
    assert by_decisions.draw(0, 3) == [modules[0]]
    assert make_sampler("uniform", modules, 1).draw(5, 3) == UniformSampler(modules, 1).draw(5, 3)
    modules[2].bitcode_path.unlink()
    with pytest.raises(CorpusError, match=r"m2\.bc: cannot be read"):
        make_sampler("size", modules, 1)


def test_unusable_samplers_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of uniform, project, size, decisions; found 'colour'"):
        make_sampler("colour", _modules(3), 1)
    with pytest.raises(ConfigError, match="none of 3 modules has any weight"):
        make_sampler("decisions", _modules(3), 1, dict)
    with pytest.raises(ConfigError, match="needs the number of decisions"):
        make_sampler("decisions", _modules(3), 1)
