"""Records of changed decisions, which may be anybody's."""

import json
from pathlib import Path

import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.policies.changed_decisions import DecisionRecord


@pytest.mark.parametrize("advice", [float("nan"), float("inf"), 1e300, 10**400, 2**64])
def test_advice_that_no_compiler_takes_is_refused(advice: float, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    change = {"function": "f", "decision": 0, "advice": 3.0, "default": 1.0}
    record = {"format": 1, "problem": "regalloc_priority", "module": "m", "changes": [change], "about": {}}
    path.write_text(json.dumps(record))
    assert DecisionRecord.load(path).changes[0].advice == 3
    path.write_text(json.dumps({**record, "changes": [{**change, "advice": advice}]}))
    with pytest.raises(PolicyError, match=rf"^{path}: [^\n]*; record the decisions again$"):
        DecisionRecord.load(path)
