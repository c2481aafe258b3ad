"""Measures how many blocks a CPU second models of blocks predict, from bytes to cycles, in one thread.

    python -m benchmarks.throughput --blocks=$BLOCKS/held_out.npz --model_dir=$GRAPH --model_dir=$SEQUENCE

The models alternate, so that changes of the machine's speed affect all alike. Each repetition decodes with a new
decoder, which has seen no instruction, and once more with the same one.
"""

import os
import platform
import statistics
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.cost_models.throughput.blocks import Block, load_blocks
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.model import ThroughputModel, annotation_inputs
from compiler_opt.errors import ConfigError
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags

_BLOCKS = shared_flags.required_path("blocks", "A file of `cost_model blocks`.")
_MODEL_DIR = flags.DEFINE_multi_string("model_dir", [], "Folder of a model of `cost_model train`; may be repeated.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 7, "Repetitions of each model.", 1)

_STAGES = ("decode, new instructions", "decode, known instructions", "encode", "network")
_TOTALS = {"bytes to cycles, new instructions": (0, 2, 3), "bytes to cycles, known instructions": (1, 2, 3)}


@entry_point.command
def entry() -> None:
    require_tensorflow("a model of blocks")
    if not _MODEL_DIR.value:
        raise ConfigError("expected at least one --model_dir")
    decoder = Decoder()
    blocks = [block for block in load_blocks(_BLOCKS.value) if decoder.decode(block.code)]
    load_tensorflow(1)
    models = {folder: ThroughputModel.load(Path(folder)) for folder in _MODEL_DIR.value}
    speeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    # The first repetition warms caches and does not count.
    for repetition in range(-1, _REPETITIONS.value):
        for folder, model in models.items():
            cpu_s = _stages_s(model, blocks)
            if repetition >= 0:
                for name, spent_s in zip(_STAGES, cpu_s, strict=True):
                    speeds[folder, name].append(len(blocks) / spent_s)
                for name, stages in _TOTALS.items():
                    speeds[folder, name].append(len(blocks) / sum(cpu_s[stage] for stage in stages))
    print(f"{len(blocks)} blocks; blocks a CPU second: median (least to most) of {_REPETITIONS.value} repetitions")
    for folder, model in models.items():
        print(f"{folder}: {model.description.kind} network, {model.description.config or 'default size'}")
        for name in (*_STAGES, *_TOTALS):
            values = speeds[folder, name]
            print(f"  {name:36} {statistics.median(values):8.0f}  ({min(values):.0f} to {max(values):.0f})")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"Python {platform.python_version()}; {os.cpu_count()} threads; {platform.machine()}; load {load}")


def _stages_s(model: ThroughputModel, blocks: list[Block]) -> list[float]:
    """CPU seconds of each of `_STAGES`."""
    decoder = Decoder()
    times_s = [time.process_time()]
    for _ in range(2):
        decoded = [decoder.decode(block.code) or [] for block in blocks]
        times_s.append(time.process_time())
    encoded = model.network.encode(decoded)
    times_s.append(time.process_time())
    model.predict_encoded(encoded, annotation_inputs(blocks))
    times_s.append(time.process_time())
    return np.diff(times_s).tolist()


if __name__ == "__main__":
    entry()
