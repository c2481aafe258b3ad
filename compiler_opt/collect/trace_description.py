"""What a trace on disk says of itself, in `TRACE.meta.json`: its features, and which compiler and corpus it comes from.

The decisions themselves are read by `rl.trace_files`; this much is known without TensorFlow.
"""

import json
from pathlib import Path
from typing import Any

from compiler_opt.errors import ProtocolError
from compiler_opt.tensor_spec import TensorSpec

FORMAT = 1
REMAKE = "make the trace again with compiler_opt/tools/generate_default_trace.py"


def meta_path(path: Path) -> Path:
    """Where the description of a trace is."""
    return path.with_name(f"{path.name}.meta.json")


class TraceDescription:
    """The description of a trace.

    Attributes:
      path: the trace.
      about: everything that the description holds.
      features: of each decision.
      advice: what was decided.
      num_contexts: how many contexts there are.
      num_decisions: how many decisions there are in all of them.
    """

    def __init__(self, path: Path):
        """Reads it.

        Raises:
          ProtocolError: there is no trace, it has no description, or the two do not belong together.
        """
        self.path = path
        meta = meta_path(path)
        for file in (path, meta):
            if not file.is_file():
                raise ProtocolError(f"{file}: no such file; {REMAKE}")
        try:
            self.about: dict[str, Any] = json.loads(meta.read_bytes())
            if self.about["format"] != FORMAT:
                raise ProtocolError(f"{meta}: expected format {FORMAT}, found {self.about['format']!r}; {REMAKE}")
            self.features = tuple(TensorSpec.from_json(spec) for spec in self.about["features"])
            self.advice = TensorSpec.from_json(self.about["advice"])
            self.num_contexts, self.num_decisions = int(self.about["num_contexts"]), int(self.about["num_decisions"])
            trace_bytes = self.about["trace_bytes"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ProtocolError(f"{meta}: damaged ({type(error).__name__}: {error}); {REMAKE}") from error
        if path.stat().st_size != trace_bytes:
            raise ProtocolError(
                f"{path}: expected {trace_bytes} bytes, found {path.stat().st_size}: trace and {meta.name} do not "
                f"belong together; {REMAKE}"
            )
