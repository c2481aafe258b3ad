"""With ccache: what is found there is what would have been compiled."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import LEAN

COMPILE = ["-Oz", "-c", "lean.c"]


class Cache:
    """A cache of its own, and what comes out of it.

    Args:
      place: a folder with `lean.c`.
      compiler: the driver that is asked for objects.
    """

    def __init__(self, place: Path, compiler: Compiler) -> None:
        self._place = place
        self._driver = compiler.driver
        self._environment = {
            "CCACHE_DIR": str(place.parent / "cache"),
            "CCACHE_COMPILERCHECK": "%compiler% --mlgo-info",
        }

    def compile(self, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        (self._place / "lean.o").unlink(missing_ok=True)
        return run(["ccache", self._driver, *COMPILE], self._place, {**self._environment, **(environment or {})})

    def made(self, environment: Mapping[str, str] | None = None) -> tuple[bytes, int]:
        """The object, and how often ccache has had it so far."""
        result = self.compile(environment)
        assert (result.returncode, result.stderr) == (0, "")
        return (self._place / "lean.o").read_bytes(), self.hits()

    def hits(self) -> int:
        statistics = run(["ccache", "--print-stats"], self._place, self._environment).stdout
        counts = dict(re.findall(r"^(\w+)\t(\d+)$", statistics, re.MULTILINE))
        return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if shutil.which("ccache") is None:
        pytest.fail("ccache is not installed; ./run_tests.sh installs what the tests need")
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    return place


def object_of(compiler: Compiler, place: Path, *, policy: bool) -> bytes:
    assert (compiler.with_policy if policy else compiler.plain)(COMPILE, place).returncode == 0
    return (place / "lean.o").read_bytes()


def test_hit_miss_and_disable(compiler: Compiler, place: Path) -> None:
    plain, with_policy = (object_of(compiler, place, policy=policy) for policy in (False, True))
    cache = Cache(place, compiler)
    assert cache.made() == (with_policy, 0)
    assert cache.made() == (with_policy, 1)
    disabled = {"MLGO_DISABLE": "1"}
    assert cache.made(disabled) == (plain, 1)
    assert cache.made(disabled) == (plain, 2)
    assert cache.made() == (with_policy, 3)


def test_another_plugin_of_the_same_size_and_time(damageable: Compiler, place: Path) -> None:
    cache = Cache(place, damageable)
    cache.made()
    written = damageable.plugin.stat().st_mtime_ns
    content = bytearray(damageable.plugin.read_bytes())
    content[-1] ^= 1
    damageable.plugin.write_bytes(content)
    os.utime(damageable.plugin, ns=(written, written))
    result = cache.compile()
    assert (result.returncode, cache.hits()) == (0, 0)
    os.utime(damageable.plugin)
    result = cache.compile({"CCACHE_RECACHE": "1"})
    assert (result.returncode, cache.hits()) == (1, 0)
    assert "damaged or replaced" in result.stderr


@pytest.mark.parametrize("lenient", [False, True])
def test_a_plain_object_is_not_kept_for_the_policys(damageable: Compiler, place: Path, lenient: bool) -> None:
    """A build without a cache would get it, with a warning; here that is an error, unless somebody wants it so."""
    plain, with_policy = (object_of(damageable, place, policy=policy) for policy in (False, True))
    script = 'case "$*" in *-fpass-plugin=*) [ -e killing ] && kill -KILL $$;; esac\nexec $CLANG "$@"\n'
    environment = damageable.stand_in(place.parent / "tools", script)
    (place / "killing").touch()
    cache = Cache(place, damageable)
    result = cache.compile({**environment, **({"MLGO_STRICT": "0"} if lenient else {})})
    if lenient:
        assert (result.returncode, (place / "lean.o").read_bytes()) == (0, plain)
        assert result.stderr.startswith("warning: mlgo: lean.c: compiled with plain clang-")
        return
    assert result.returncode != 0
    [message] = [line for line in result.stderr.splitlines() if "mlgo" in line]
    assert message == (
        "error: mlgo: lean.c: failed with the policy: the compiler died: Killed; not compiled without it, since ccache "
        "would keep that (MLGO_STRICT=0 allows it)"
    )
    assert not (place / "lean.o").exists()
    (place / "killing").unlink()
    assert cache.made(environment) == (with_policy, 0)
    # Where ccache only passes a command line on, nothing is kept.
    (place / "killing").touch()
    result = cache.compile({**environment, "CCACHE_DISABLE": "1"})
    assert (result.returncode, (place / "lean.o").read_bytes()) == (0, plain)
