"""Stores of best trajectories: the better one stays, stores merge in any order, damaged files are set aside by name."""

import base64
import dataclasses
import hashlib
import itertools
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import pack_arrays
from compiler_opt.collect.best_trajectories import BestTrajectories, BestTrajectory
from tests import programs

_FIRST = BestTrajectory(
    problem="inlining",
    compiler="22.1.0",
    module="p/m",
    project="p",
    policy="never",
    reward=0.1,
    features={"cost": np.array([[3], [4]]), "height": np.array([1.5, 2.5], np.float32)},
    advice=np.array([0, 1]),
)


def _with(trajectory: BestTrajectory = _FIRST, **changes: object) -> BestTrajectory:
    return dataclasses.replace(trajectory, **changes)  # type: ignore[arg-type]


def _read(store: BestTrajectories, *features: str) -> tuple[list[BestTrajectory], list[str]]:
    skipped: list[str] = []
    return list(store.read("inlining", features, skipped.append)), skipped


def _summary(trajectories: Iterable[BestTrajectory]) -> list[tuple[str, str, float]]:
    return [(each.module, each.policy, each.reward) for each in trajectories]


def test_the_better_one_stays(tmp_path: Path) -> None:
    store = BestTrajectories(tmp_path / "store")
    assert store.add(_FIRST)
    assert not store.add(_with(policy="worse", reward=-0.2))
    assert not store.add(_with(policy="equal"))
    assert store.add(_with(policy="better", reward=0.3, advice=np.array([1, 1])))
    assert store.add(_with(module="p/\udcff", reward=-0.5))
    assert (
        store.fingerprint()
        == BestTrajectories(tmp_path / "store").fingerprint()
        != (BestTrajectories(tmp_path / "none").fingerprint())
    )
    found, skipped = _read(store, "height")
    assert not skipped and len(list((tmp_path / "store").iterdir())) == 2
    assert _summary(found) == [("p/m", "better", 0.3), ("p/\udcff", "never", -0.5)]
    np.testing.assert_array_equal(found[0].advice, [1, 1])
    for name, values in _FIRST.features.items():
        np.testing.assert_array_equal(found[0].features[name], values)
        assert found[0].features[name].dtype == values.dtype


def test_stores_merge_in_any_order(tmp_path: Path) -> None:
    stores = []
    for number in range(3):
        store = BestTrajectories(tmp_path / str(number))
        for module in range(4):
            # Some rewards are equal, under different policies.
            store.add(_with(module=f"m{module}", policy=f"policy {number}", reward=float((number + module) % 2)))
        stores.append(store)
    merged = []
    for order in itertools.permutations(range(3)):
        store = BestTrajectories(tmp_path / f"merged {order}")
        assert store.merge(stores[order[0]]) == 4
        for number in order[1:]:
            store.merge(stores[number])
        assert store.merge(stores[order[0]]) == 0
        merged.append(_summary(_read(store)[0]))
    assert [reward for _, _, reward in merged[0]] == [1.0] * 4
    assert all(other == merged[0] for other in merged)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "renamed"])
def test_damaged_files_are_set_aside_by_name(damage: str, tmp_path: Path) -> None:
    store, other = BestTrajectories(tmp_path / "store"), BestTrajectories(tmp_path / "other")
    store.add(_FIRST)
    store.add(_with(module="q/n"))
    path = next(path for path in sorted((tmp_path / "store").iterdir()) if path.stem.startswith(_FIRST.key))
    good = path.read_bytes()
    if damage == "renamed":
        path = path.rename(path.with_name(f"{'0' * 16}-{path.stem.partition('-')[2]}.npz"))
    else:
        path.write_bytes({"cut": good[:-9], "flipped": good[:90] + b"x" + good[91:], "empty": b""}[damage])
    found, [line] = _read(store)
    assert _summary(found) == [("q/n", "never", 0.1)]
    assert line.startswith(f"{path}: damaged (") and "name" in line
    assert line.endswith(f"; kept as {path.name}.damaged, left out")
    assert not path.exists() and path.with_name(f"{path.name}.damaged").is_file()
    lines: list[str] = []
    assert other.merge(store, lines.append) == 1 and lines == []
    if damage != "renamed":
        # A new one takes its place.
        assert store.add(_with(reward=-1.0))
        assert _read(store)[1] == [] and len(_read(store)[0]) == 2


_WRITTEN_NAME = "c498b0226876c619-dc057d091ac3184e0661afb6cf060496c3b088a7d0010b2d3d0a49ca9ea49101.npz"
_WRITTEN_FILE = base64.b85decode(
    "P)h>@EdT%j2mk;8Apq#m)2RRd|NsC0|NjjD6aZ#rVRUtJWgufNZg6=401yC>000000000=000000001+>=)`A5Xs0;#!#)El3JWxq;934Zj))DuA"
    "`uymS0p-l$aNvUzCyx5_e0?DNY577iT0EqyqUGMmm~03bhIp04`<*2w;KI08mQ<1T6pn00;m803iT=YWvCm|NsC0|Ns9A02BaWWOiv|WiD=Tc>w?"
    "r0FVFx0000007(D<000000GsR=>KhQr$WX>mt)7xvoLr=CrJ!z;X`!y8pq`drR8o|f7oT60k_r-cOUx-w1&SAEBo?Fs`5Hz#nmP)#3KRe?1}I>J("
    "g09P0|YGq000O8001EXcu%p3|NsC0|NsC02>=uTVPbD}bS`dic>w?r0PO$(000000GI#(000000G-P{3c@fL#__s(ijXA=LED0ZJ%F3y;@~7PdDT"
    "e1c+*y-_7q;&q(|`C{y%uWhtvLeo)vvDFa=Q}YY6*v72|~6Jhmv@#iN4kJ7FRuj}H+b^`a`be96g3{@#3`0sYm0r46Cl8SS*YQ%<P#HfRHwy{@xZ"
    "uQ~&{!`fy@&nL)slBvDX@}1K`pPq>jUIJC3a#e4}A5cpH0xbhA000080000X0O-)us7e3;0FVFx01W^D00000000000Du7i0001HWnpx6a%CW6E^"
    "csnP)h*<Edwn8000O8001EXero&4NdN!<kN^Mx3IG5A0000000000fB}gB003cRc4=c}E^csnP)h*<Edwn8000O8001EXcu%p3m;e9(?EnA(2><{"
    "90000000000fB_Bx003cPZ*_DoZg6=}O9ci10000300RK30002t0RR9100"
)


def _contents(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def test_a_file_of_an_earlier_version_is_read_and_written_again(tmp_path: Path) -> None:
    written = tmp_path / "store" / _WRITTEN_NAME
    written.parent.mkdir()
    written.write_bytes(_WRITTEN_FILE)
    ([found], skipped) = _read(BestTrajectories(written.parent), "c")
    assert not skipped and found.features["c"].tolist() == [3, 4] and found.reward == 0.25
    assert BestTrajectories(tmp_path / "again").add(found)
    [again] = (tmp_path / "again").iterdir()
    # The rest of the name is that of the content, which zlib may compress otherwise elsewhere.
    assert again.name[:17] == written.name[:17] and _contents(again) == _contents(written)


def test_what_is_nested_deeply_is_set_aside_by_name(tmp_path: Path) -> None:
    content = pack_arrays({"about": np.frombuffer(b"[" * 100_000, np.uint8), "advice": np.zeros(2)})
    path = tmp_path / f"{_FIRST.key}-{hashlib.sha256(content).hexdigest()}.npz"
    path.write_bytes(content)
    line = f"{path}: damaged (nested deeper than 64 levels); kept as {path.name}.damaged, left out"
    assert _read(BestTrajectories(tmp_path)) == ([], [line])


def test_what_does_not_suit_is_skipped_by_name(tmp_path: Path) -> None:
    store = BestTrajectories(tmp_path)
    store.add(_FIRST)
    [path] = tmp_path.iterdir()
    assert _read(store, "weight") == ([], [f"{path}: skipped: lacks the features weight"])
    skipped: list[str] = []
    assert not list(store.read("regalloc_eviction", [], skipped.append))
    assert skipped == [f"{path}: skipped: is about 'inlining', not about regalloc_eviction"]


@pytest.mark.parametrize(
    "changes", [{"reward": float("nan")}, {"advice": np.zeros((2, 1))}, {"features": {"cost": np.zeros(3)}}]
)
def test_columns_and_reward_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        _with(_FIRST, **changes)


@pytest.mark.ci
def test_the_command_merges(tmp_path: Path) -> None:
    for name, reward in (("one", 0.1), ("two", 0.2)):
        store = BestTrajectories(tmp_path / name)
        store.add(_with(policy=name, reward=reward))
        store.add(_with(policy=name, module=name))
    tool = "compiler_opt/tools/merge_best_trajectory.py"
    flags = [f"--input={tmp_path / name}" for name in ("one", "two")]
    result = programs.run(tool, *flags, f"--output_dir={tmp_path / 'out'}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith(f"{tmp_path / 'two'}: 2 of its trajectories")
    found = _summary(_read(BestTrajectories(tmp_path / "out"))[0])
    assert found == [("one", "one", 0.1), ("p/m", "two", 0.2), ("two", "two", 0.1)]
    result = programs.run(tool, f"--input={tmp_path / 'none'}", f"--output_dir={tmp_path / 'out'}")
    assert result.returncode == 2 and f"--input={tmp_path / 'none'}: expected a folder" in result.stderr
