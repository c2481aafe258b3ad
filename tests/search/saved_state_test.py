"""Saved searches: read as they were written, and refused by name if they are damaged or another's."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.errors import ConfigError
from compiler_opt.policies.decisions import Site
from compiler_opt.search.saved_state import SavedState
from compiler_opt.search.search import Search, SearchSettings
from tests.search.search_test import random_program
from tests.search.simulator import Simulator

IDENTITY = {"program": "abc", "compiler": "22.1.8"}


def saved(path: Path) -> SavedState:
    modules = random_program(2, 2, num_functions=15)
    run = Search(Simulator(modules), 2, SearchSettings(budget=10))
    run.run()
    state = run.state()
    state.save(path, IDENTITY)
    return state


def test_read_as_written(tmp_path: Path) -> None:
    state = saved(tmp_path / "state.json")
    loaded = SavedState.load(tmp_path / "state.json", IDENTITY)
    assert loaded is not None
    assert loaded == state
    assert SavedState.load(tmp_path / "none.json", IDENTITY) is None


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    site = Site("caf\udce9", 1 << 63, "call\udcff", 3)
    state = SavedState(best={site: 1}, expectations=[], curve=[], versions={"caf\udce9": 2})
    state.save(tmp_path / "state.json", {})
    assert SavedState.load(tmp_path / "state.json", {}) == state


def test_another_search_s(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    saved(path)
    with pytest.raises(ConfigError, match=r"another compiler \(22.1.8, now 19.1.7\); remove the file"):
        SavedState.load(path, {**IDENTITY, "compiler": "19.1.7"})


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "state.json"
    if not path.exists():
        saved(path)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(
        st.sampled_from([bytes(content[:position]), bytes(content[:position]) + b"\0" + content[position + 1 :]])
    )
    (tmp_path / "damaged.json").write_bytes(changed)
    with pytest.raises(ConfigError, match=r"damaged.json: .*; remove the file to start over") as raised:
        SavedState.load(tmp_path / "damaged.json", IDENTITY)
    assert "\n" not in str(raised.value)


def test_wrong_values(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"format": 1}))
    with pytest.raises(ConfigError, match="does not match its checksum"):
        SavedState.load(path, {})
