"""Valid inputs, from which fuzzing starts."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.array_files import pack_arrays
from compiler_opt.corpus.module import format_options
from compiler_opt.policies.decisions import DEFAULT_BASE, Decisions, Site
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.spaces.native import native_blob
from tests.llvm.training_log_samples import TensorSpec, write
from tests.real_observations import recurrent, weights_for

_SOURCE = """
static int local(int x) { return x * 3; }
__attribute__((weak)) int weak(int x) { return local(x) + 1; }
int data[4] = {1, 2, 3, 4};
int strong(int x) { return weak(x) + data[x & 3]; }
"""
_TARGETS = ("x86_64-linux-gnu", "i386-linux-gnu", "s390x-linux-gnu", "powerpc-linux-gnu")
_COMMAND_LINES = (
    "-Oz -c a.c -o a.o",
    "-O2 -g -flto -fuse-ld=lld a.o b.o -o program -Wl,-O1 -Xlinker --as-needed",
    "--optimize=s -x c++ --language=c -S -emit-llvm -ffat-lto-objects -- -c.c",
    "@-Oz @/proc/self/fd/3 @/proc/self/fd/4 -c 'a b'.c \\\"x\\\" -MJ db.json -Xclang -fsyntax-only",
    "-Os -MD -MF d -include config.h -gsplit-dwarf -save-temps -grecord-command-line --config=x.cfg a.cc",
    "-Xarch_host -O3 -flto=thin --ld-path=/usr/bin/ld.lld -E --analyze -dumpmachine --output=o.o x.cu",
)
_CONFIGURATION = """ "/usr/bin/clang" "-cc1"
 "/usr/bin/ld.lld" "-o" "a.out"
%-Oz # comment
-flto \\
@other.cfg $-Wl,-z
"a b" 'c'
"""
_OPTIONS = ("-cc1", "-Oz", "-triple", "x86_64-pc-linux-gnu", "-mllvm", "-inline-threshold=10", "-fembed-bitcode=all")
_REMARKS = """--- !Passed
Pass:            inline
Name:            Inlined
Function:        'a b'
Args:
  - Callee:          "c\\x01d"
  - callee_users:    '3'
...
--- !Missed
Pass:            regalloc
Name:            SpillReloadCopies
Function:        main
Args:
  - NumSpills:       '2'
  - TotalSpillsCost: '1.5e+00'
...
"""


def _compiled(clang: Path, folder: Path) -> tuple[list[bytes], bytes]:
    """An object of each width and byte order, and bitcode."""
    source, output = folder / "seed.c", folder / "seed.o"
    source.write_text(_SOURCE)
    objects = []
    for target in _TARGETS:
        command = [str(clang), f"--target={target}", "-Oz", "-ffunction-sections", "-c", str(source), "-o", str(output)]
        subprocess.run(command, check=True)
        objects.append(output.read_bytes())
    subprocess.run([str(clang), "-Oz", "-emit-llvm", "-c", str(source), "-o", str(output)], check=True)
    return objects, output.read_bytes()


def _small_network(features: tuple[str, ...], num_outputs: int) -> NetworkWeights:
    kernel = np.ones((len(TRANSFORMS) * len(features), num_outputs), "f4")
    return NetworkWeights(features, tuple(np.arange(2.0) for _ in features), (kernel,), (np.ones(num_outputs, "f4"),))


def seeds(clang: Path, folder: Path) -> Mapping[str, list[bytes]]:
    """Inputs by the name of a target of `native.TARGETS` or of `readers.READERS`; `folder` is for scratch files."""
    objects, bitcode = _compiled(clang, folder)
    columns = {f"f{index}": np.arange(20) % (5 + index) - 2 for index in range(3)}
    network = weights_for(columns, hidden=(5,))
    networks = [network, network.with_margin(0.5), weights_for(columns, hidden=())]
    networks += [recurrent(network, units=3), recurrent(network, units=3).with_margin(0.5)]
    networks += [_small_network(("is_hint", "own_use_def_density", "less_nr_broken_hints", "rank"), 1)]
    networks += [_small_network(("li_size", "weight"), 2)]
    sites = {Site(f, body, "callee", n): n % 2 for f in "ab" for body in (1, 2) for n in range(3)}
    decisions = Decisions(sites, {"llvm": "22.1.8", "policy": DEFAULT_BASE})
    specs = [TensorSpec("first", np.dtype("i8"), (1,)), TensorSpec("second", np.dtype("f4"), (2, 3))]
    logs = [
        write(specs, score, [("a", 0, "o" * 12), ("b", 0, "..o"), ("a", 12, "..")], seed).content
        for seed, score in enumerate((None, TensorSpec("score", np.dtype("f4"), (1,))))
    ]
    arrays = {"numbers": np.arange(5), "reals": np.ones((2, 3), "f4")}
    return {
        "arrays": [pack_arrays(arrays), pack_arrays(arrays, compressed=True)],
        "bitcode": [bitcode, bitcode * 2],
        "command_line": [line.replace(" ", "\0").encode() + b"\0" for line in _COMMAND_LINES],
        "configuration": [_CONFIGURATION.encode()],
        "decision_file": [decisions.native_form(major=22), Decisions({}, decisions.about).native_form(major=22)],
        "elf": objects,
        "elf_file": objects,
        "options": [format_options(_OPTIONS)],
        "policy_network": [native_blob(each) for each in networks],
        "remarks": [_REMARKS.encode()],
        "training_log": logs,
    }
