"""Stores of flips: what is added is read, stores merge, and damaged files are set aside by name."""

import base64
import dataclasses
import hashlib
import zipfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.collect.flip_store import Flips, FlipStore

_FLIPS = Flips(
    problem="inlining",
    compiler="clang version 22",
    base="default",
    features=("height", "cost"),
    modules=("p/m", "p/\udcff"),
    projects=("p", "p"),
    observations=np.array([[1, 10], [2, 20], [3, 30]]),
    actions=np.array([0, 1, 1]),
    base_actions=np.array([1, 0, 0]),
    gains=np.array([-4.0, 0.5, 12.0]),
    linked_gains=np.array([-4.0, np.nan, 16.0]),
    owners=np.array([0, 0, 1], np.int32),
)


def _read(store: FlipStore, *features: str) -> tuple[list[Flips], list[str]]:
    skipped: list[str] = []
    return list(store.read("inlining", features, skipped.append)), skipped


def test_what_is_added_is_read_with_the_features_in_order(tmp_path: Path) -> None:
    store = FlipStore(tmp_path / "store")
    assert store.add(_FLIPS) == store.add(_FLIPS)
    ([found], skipped) = _read(store, "cost", "height")
    assert not skipped
    np.testing.assert_array_equal(found.observations, [[10, 1], [20, 2], [30, 3]])
    for name in ("actions", "base_actions", "gains", "linked_gains", "owners"):
        np.testing.assert_array_equal(getattr(found, name), getattr(_FLIPS, name))
    assert (found.modules, found.projects, found.base, len(found)) == (_FLIPS.modules, ("p", "p"), "default", 3)


def test_stores_merge_and_have_nothing_twice(tmp_path: Path) -> None:
    one, two = FlipStore(tmp_path / "one"), FlipStore(tmp_path / "two")
    one.add(_FLIPS)
    two.add(_FLIPS)
    two.add(dataclasses.replace(_FLIPS, compiler="clang version 19"))
    assert (one.merge(two), one.merge(two)) == (1, 0)
    # A damaged file is replaced.
    path = one.add(_FLIPS)
    path.write_bytes(path.read_bytes()[:-1])
    assert (one.merge(two), one.merge(two)) == (1, 0)
    assert sorted(flips.compiler for flips in _read(one, "cost")[0]) == ["clang version 19", "clang version 22"]


def test_what_does_not_suit_is_skipped_by_name(tmp_path: Path) -> None:
    store = FlipStore(tmp_path)
    path = store.add(_FLIPS)
    assert _read(store, "weight") == ([], [f"{path}: skipped: lacks the features weight"])
    skipped: list[str] = []
    assert not list(store.read("regalloc_eviction", ["cost"], skipped.append))
    assert skipped == [f"{path}: skipped: is about 'inlining', not about regalloc_eviction"]


_WRITTEN_NAME = "56d0aaa393d596eef4e33580d90e9c57098c7d4bd277e58761fce01b4a2337fa.npz"
_WRITTEN_FILE = base64.b85decode(
    "P)h>@EdT%j2mk;8ApoG7zLNj{|NsC0|NjdB6aZmkbZKvHb1rUhc>w?r0Ehqp0000007n1-000000GsR=>KhQr$WX>mt)7xvoLr=CrJ!z;X`!y8pq"
    "`drR8o|f7oT60k_r-cOUx-w1&SAEBo?Fs`5J~gnmP)#3KRe?1}FdkP)h>@EdT%j2mk;8Apky_6kh-T|NsC0|NjsG6aZpjb7fy)V{~b6ZgVbfaCrd"
    "$5CDh(00000002k;00000005ip7wQ`j$;eQ~P_3SlTAW;@Zl$1ZlWC!@qoAIaUsO_*m=~X4l#&V(cT3DEP6dh=XCxM+0{I$-I+{8PwF(pfE=C3j0"
    "02-+0|YGq000O8001EX>cttI|NsC0|NsC02>=uTXJKh>b1rUhc>w?r0Ehqp0000007(D<000000GsR=>KhQr$WX>mt)7xvoLr=CrJ!z;W}&X5pq`"
    "drR8o|f7oT60k_r-cOUx-w1&SAEBo?Fs`5J~gnmP)#3KRe?1~7PF4**b00|YGq000O8001EXBOKmo|NsC0|NsC05C9YaY-w(5Wn^DxVQFr2E^csn"
    "0RRvHhyVZp00000NdN!<00000o9q|r8xYCJP{vTLo|0OeT%>NLpl*|9p{}E#o|a!!Qk0k%pI?-c3KDlq%qdO<iWg@j7Ni3C8iqQWItsN46aX#;F!"
    ")gq08mQ<1T6pn00;m803iUxf3Elc|NsC0|Ns9A02BakcWz~Jb1rUhc>w?r0E7Sl0000007n1-000000GsR=>KhQr$WX>mt)7xvoLr=CrJ!z;X`-&"
    "9pq`drR8o|f7oT60k_r-cOUx-w1&SAEBo?Fs`5J~gnmP)#3KRe?1|R?cP)h>@EdT%j2mk;8Apps|Xx9J#|NsC0|NjsG6aa5xb7gXNVRUJ4ZgVbfa"
    "Crd$5CD(>00000002w?00000005ip7wQ`j$;eQ~P_3SlTAW;@Zl$1ZlWC!@qoAIaUsO_*m=~X4l#&V(cT3DEP6dh=XCxM+0{I$-ItoUbItsN4WCJ"
    "cn1_)q+(g09P0|YGq000O8001EXITM;2|NsC0|NsC02>=uTVPbD}bS`dic>w?r0Q&#{000000G|K=000000G-WE3c@fD1>m~%6k#?|2uSO$2XLpj"
    "aUoJ9ZKoQ^ANg@pdkQaXQhEa4V&Hu+yzl99JYQGEyBKMYzH_uD^b<?U2px<Ij_bQ|J!U^}=`p!~a*L^N%4*NHj7;S3tVgiUv=SB61ca7C3;h5_pf"
    "kz}i7tCpWofy`+<F{%lp)iAJVb{+@eQ8y8#L)E(?_|m-Kp8q&I`M+AT-ktP)h*<Edwn8000O8001EXpqjptM*si-hyVZp3jhEB0000000000fB^s"
    "i003cQbZKvHb1rUhc~DCM0xbhA000080000X06v-&UPu4{0Ehqp01yBG00000000000Du960001DVRL0)VPkY@Z*FrgZg6=}O928c11$gm00;m80"
    "3iVC#TlJR0001p0000900000000000001h0S*BG0B2!oZgVbfaCuNm0Rk-pEdT%j2mk;8Apj#B-f2ky004*p000mG0000000000004jik^uk!Y-w"
    "(5Wn^DxVQFr2E^csnP)h*<Edwn8000O8001EX#DA{$M*si-ga7~l3IG5A0000000000fB_u>003`yZe?<FE^csnP)h*<Edwn8000O8001EX$-HRR"
    "OaK4?kN^Mx5C8xG0000000000fB~Qa003`db7gXNVRUJ4ZgVbfaCuNm0Rk-pEdT%j2mk;8ApkiOnj4=0008>{000R90000000000004jiE&~7nVP"
    "bD}bS`dic~DCQ1^@s600#gE0GR;*00;yC0000"
)


def _contents(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def test_a_file_of_an_earlier_version_is_read_and_written_again(tmp_path: Path) -> None:
    written = tmp_path / "store" / _WRITTEN_NAME
    written.parent.mkdir()
    written.write_bytes(_WRITTEN_FILE)
    ([found], skipped) = _read(FlipStore(written.parent), "h", "c")
    assert not skipped and found.observations.tolist() == [[1, 2]] and found.gains.tolist() == [0.5]
    # The name is that of the content, which zlib may compress otherwise elsewhere.
    assert _contents(FlipStore(tmp_path / "again").add(found)) == _contents(written)


def test_what_is_nested_deeply_is_set_aside_by_name(tmp_path: Path) -> None:
    path = FlipStore(tmp_path).add(_FLIPS)
    about = np.frombuffer(b"[" * 100_000, np.uint8)
    content = pack_arrays({**load_arrays(path, 1 << 20), "about": about})
    path.unlink()
    path = path.with_stem(hashlib.sha256(content).hexdigest())
    path.write_bytes(content)
    line = f"{path}: damaged (nested deeper than 64 levels); kept as {path.name}.damaged, left out"
    assert _read(FlipStore(tmp_path)) == ([], [line])
    assert _read(FlipStore(tmp_path)) == ([], [])
    assert path.with_name(f"{path.name}.damaged").read_bytes() == content


@hypothesis.given(st.data())
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_damaged_file_is_set_aside_and_not_merged(tmp_path: Path, data: st.DataObject) -> None:
    store, other = FlipStore(tmp_path / "store"), FlipStore(tmp_path / "other")
    path = store.add(_FLIPS)
    whole = path.read_bytes()
    position, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, len(whole)))
    flipped = bytes([whole[position] ^ data.draw(st.integers(1, 255))])
    content = data.draw(st.sampled_from([whole[:position] + flipped + whole[position + 1 :], whole[:length]]))
    path.write_bytes(content)
    found, skipped = _read(store, "cost")
    assert path.exists() == (content == whole)
    path.write_bytes(content)
    lines: list[str] = []
    assert other.merge(store, lines.append) == 0 or content == whole
    assert (len(found), len(skipped), len(lines)) == ((1, 0, 0) if content == whole else (0, 1, 1))
    assert all("\n" not in line and line.startswith(f"{path}: damaged (") for line in skipped + lines)


def test_a_damaged_file_that_cannot_be_renamed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = FlipStore(tmp_path).add(_FLIPS)
    path.write_bytes(b"")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    [], [line] = _read(FlipStore(tmp_path))
    assert line.startswith(f"{path}: damaged (") and line.endswith("; it cannot be renamed, left out")


def test_columns_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="owners: expected indices of 2 modules"):
        dataclasses.replace(_FLIPS, owners=np.array([0, 0, 2], np.int32))
    with pytest.raises(ValueError, match=r"observations: expected shape \(3, 2\), found \(3, 1\)"):
        dataclasses.replace(_FLIPS, observations=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="gains: expected finite"):
        dataclasses.replace(_FLIPS, gains=np.array([1, np.nan, 2]))
