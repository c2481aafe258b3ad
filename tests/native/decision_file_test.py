"""The C++ reader of decision files: finds what Python has written, and is memory-safe for any blob."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.decisions import DEFAULT_BASE, Decisions, Site, guid
from tests.native.cpp import build, run_driver

_DRIVER = Path(__file__).with_name("decision_file_driver.cpp")
_ABOUT = {"llvm": "22.1.8", "policy": DEFAULT_BASE}
_SMALL = Decisions({Site(f, body, "callee", n): n % 2 for f in "ab" for body in (1, 2) for n in range(3)}, _ABOUT)
_CALLERS, _DECISIONS = 48, 48 + 4 * 24
"""Where the sections of its native form begin."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build([_DRIVER], tmp_path_factory.mktemp("driver") / "driver", "g++", *options)


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.mlgo"
    path.write_bytes(_SMALL.native_form(major=22))
    return path


def _lookups(driver: Path, blob: Path, sites: Sequence[Site]) -> list[str]:
    queries = [(guid(site.caller), site.body, guid(site.callee), site.ordinal) for site in sites]
    path = blob.with_name("queries")
    path.write_bytes(b"".join(struct.pack("<4Q", *query) for query in queries))
    return run_driver(driver, "lookup", blob, path)


def test_lookups_find_exactly_what_was_written(driver: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = (rng.integers(0, limit, 4000).tolist() for limit in (40, 3, 5, 6))
    sites = [Site(f"f{f}", body, f"g{g}", ordinal) for f, body, g, ordinal in zip(*columns, strict=True)]
    advice = {site: index % 2 for index, site in enumerate(sites[:1500])}
    path = tmp_path / "decisions.mlgo"
    path.write_bytes(Decisions(advice, _ABOUT).native_form(major=22))
    expected = [str(advice.get(site, "-")) for site in sites]
    assert set(expected) == {"0", "1", "-"}
    assert _lookups(driver, path, sites) == expected
    path.write_bytes(Decisions({}, _ABOUT).native_form(major=22))
    assert _lookups(driver, path, sites[:2]) == ["-", "-"]


def test_a_damaged_blob_is_rejected(driver: Path, blob: Path) -> None:
    run_driver(driver, "damage", blob)


def test_forged_blobs_are_memory_safe(driver: Path, blob: Path) -> None:
    """Damaged blobs with correct checksums, under sanitizers for memory and undefined behaviour."""
    # Many changes are legal: of what the file is about, of bodies within their order, of advice.
    assert 500 < int(run_driver(driver, "fuzz", blob, 1, 5000)[0]) < 4000


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, b"x", "expected it to begin with `mlgo-dec`"),
        (8, struct.pack("<I", 2), "another format version"),
        (8, struct.pack(">I", 1), "little-endian"),
        (16, struct.pack("<Q", 1 << 40), "truncated"),
        (16, struct.pack("<Q", 48), "longer than its header says"),
        (28, struct.pack("<I", 3), "sections"),
        (28, struct.pack("<I", 2**32 - 1), "sections"),
        (32, struct.pack("<I", 2**32 - 1), "sections"),
        (36, struct.pack("<I", 2**32 - 1), "sections"),
        (_CALLERS, b"\xff" * 8, "functions are not sorted"),
        (_CALLERS + 16, struct.pack("<I", 1), "out of range"),
        (_CALLERS + 20, struct.pack("<I", 2**32 - 1), "out of range"),
        (_CALLERS + 3 * 24 + 20, struct.pack("<I", 2), "belong to no function"),
        (_DECISIONS + 8, struct.pack("<I", 1), "decisions are not sorted"),
        (_DECISIONS + 12, struct.pack("<I", 2), "neither 0 nor 1"),
    ],
)
def test_each_error_message_gives_the_reason(driver: Path, blob: Path, place: int, value: bytes, problem: str) -> None:
    content = blob.read_bytes()
    forged = content[:place] + value + content[place + len(value) :]
    blob.write_bytes(forged[:12] + struct.pack("<I", zlib.crc32(forged[16:])) + forged[16:])
    [message] = run_driver(driver, "load", blob)
    assert problem in message
    blob.write_bytes(content)
    assert run_driver(driver, "load", blob) == ["good"]
