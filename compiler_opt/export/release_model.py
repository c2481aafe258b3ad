"""Policies as a C++ class to compile into LLVM, with our evaluator or compiled ahead of time (AOT) by TensorFlow.

    InlinerSizeModel.h      the class `llvm::InlinerSizeModel` with weights and evaluator; needs no other file
    InlinerSizeModel.cpp    instantiates it, for builds that expect header and object; not with TensorFlow
    InlinerSizeModel.o      that object

LLVM's `ReleaseModeModelRunner` takes either class; docs/deploy_forms.md describes how to build LLVM with it.
TensorFlow's class needs TensorFlow's runtime sources to be linked; ours has the same interface and needs nothing else.
Ours may have several policies, one of which the compiler selects by the MD5 hash of its name, LLVM's argument
`model_selector`.
"""

import dataclasses
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.decisions.decision import Decision
from compiler_opt.decisions.regalloc_eviction import signature as eviction
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.files import write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.native import byte_rows, include_directory
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tensorflow_loading import require_tensorflow

_INT64: np.dtype = np.dtype("i8")
_FLOAT: np.dtype = np.dtype("f4")


@dataclasses.dataclass(frozen=True)
class EmbeddedModel:
    """The names of a problem's model in LLVM.

    Attributes:
      class_name: of the class in namespace `llvm`, of its header and object, and in upper case of the CMake variables.
      advice: the tensor of a decision.
      features: the tensors of all features, if some are not scalar int64; else none.
    """

    class_name: str
    advice: TensorSpec
    features: tuple[TensorSpec, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.class_name, re.ASCII):
            raise PolicyError(f"release model: expected the name of a C++ class, found {self.class_name!r}")


EMBEDDED_MODELS: Mapping[str, EmbeddedModel] = {
    "inlining": EmbeddedModel("InlinerSizeModel", TensorSpec("inlining_decision", _INT64, (1,))),
    "regalloc_eviction": EmbeddedModel(
        "RegAllocEvictModel",
        TensorSpec("index_to_evict", _INT64, (1,)),
        (
            *(
                TensorSpec(name, _INT64 if name in eviction.INTEGERS else _FLOAT, (1, eviction.NUM_CANDIDATES))
                for name in (eviction.MASK, *eviction.FEATURES)
            ),
            TensorSpec(eviction.PROGRESS, _FLOAT, (1,)),
        ),
    ),
    "regalloc_priority": EmbeddedModel(
        "RegAllocPriorityModel",
        TensorSpec("priority", _FLOAT, (1,)),
        (TensorSpec("li_size", _INT64, (1,)), TensorSpec("stage", _INT64, (1,)), TensorSpec("weight", _FLOAT, (1,))),
    ),
}
"""By problem, as in `llvm/lib/{Analysis,CodeGen}/CMakeLists.txt`."""

_CPP_COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300.0
_AOT_TIMEOUT_S = 900.0
_AOT_MEMORY_BYTES = 1 << 36  # address space, much of which TensorFlow only reserves
SAVED_MODEL_FILE = "saved_model.pb"
_C_TYPES = {_INT64: "int64_t", _FLOAT: "float"}


def header_text(policies: Mapping[str, NetworkWeights], decision: Decision, model: EmbeddedModel) -> str:
    """The self-contained header of a problem's policies.

    Args:
      policies: by name, by which the compiler selects one; or a single one with the name "".
      decision: of all policies.
      model: the decision's names in LLVM.

    Raises:
      PolicyError: a name is invalid, or a network is for another problem, or too large.
    """
    learned = [decision.policy(weights, origin=name) for name, weights in policies.items()]
    tensors = {spec.name: spec for spec in model.features}
    arguments = {
        name: tensors.get(name, TensorSpec(name, _INT64, (1,))) for policy in learned for name in policy.needed_features
    }
    for what, names in (("a feature", arguments), ("a policy", [name for name in policies if name])):
        for each in names:
            if not re.fullmatch(r"[\w.\-]+", each, re.ASCII):
                raise PolicyError(f"release model: expected the name of {what}, found {each!r}")
    blobs = [decision.native_form(weights) for weights in policies.values()]
    native, name = decision.action_space.native_model, model.class_name
    guard = f"COMPILER_OPT_{name.upper()}_H_"
    files = ("policy_network.h", *native.headers, "release_model.h")
    headers = ((include_directory() / file).read_text(encoding="utf-8") for file in files)
    # Each header includes earlier ones.
    sources = re.sub(rf'#include "(?:{"|".join(map(re.escape, files))})"\n+', "", "\n".join(headers))
    checksums = ", ".join(filter(None, (f"{each} {weights.checksum()}".strip() for each, weights in policies.items())))
    return f"""// llvm::{name}: a trained policy for llvm::ReleaseModeModelRunner, without TensorFlow.
// Made by compiler_opt (export/release_model.py); weights {checksums}.

#ifndef {guard}
#define {guard}

{sources}
namespace compiler_opt {{

struct {name}Policies {{
  using Result = {_C_TYPES[model.advice.dtype]};
  static constexpr const char *kClass = "{name}";
  static constexpr Tensor kArguments[] = {{
{"".join(map(_argument_row, arguments.values()))}  }};
  static constexpr const char *kResult = "{model.advice.name}";
  static constexpr bool kHasSelector = {"false" if "" in policies else "true"};
  static constexpr size_t kNumPolicies = {len(policies)};
  static EmbeddedPolicy policy(size_t index) {{
{"".join(_bytes_definition(index, blob) for index, blob in enumerate(blobs))}\
    static constexpr EmbeddedPolicy policies[] = {{
{"".join(_policy_row(index, each) for index, each in enumerate(policies))}    }};
    return policies[index];
  }}
  static auto model() {{ return {native.expression}; }}
}};

}}  // namespace compiler_opt

namespace llvm {{

class {name} final : public compiler_opt::ReleaseModel<compiler_opt::{name}Policies> {{}};

}}  // namespace llvm

#endif  // {guard}
"""


def _argument_row(spec: TensorSpec) -> str:
    return f'      {{"{spec.name}", {str(spec.dtype == _FLOAT).lower()}, {spec.num_elements}}},\n'


def _bytes_definition(index: int, blob: bytes) -> str:
    return f"    alignas(64) static constexpr unsigned char bytes_{index}[] = {{\n{byte_rows(blob)}    }};\n"


def _policy_row(index: int, name: str) -> str:
    """The hash as `llvm::MD5` gives it: the last eight bytes, then the first ones, both little-endian."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest() if name else bytes(16)
    high, low = (int.from_bytes(half, "little") for half in (digest[8:], digest[:8]))
    return f'        {{"{name}", {high:#018x}u, {low:#018x}u, bytes_{index}, sizeof(bytes_{index})}},\n'


def source_text(model: EmbeddedModel) -> str:
    """The source of the object: instantiates the class of the header."""
    return (
        f'#include "{model.class_name}.h"\n\n'
        f"// The class is complete in its header; this is for builds that want an object as well.\n"
        f"template class compiler_opt::ReleaseModel<compiler_opt::{model.class_name}Policies>;\n"
    )


def write_release_model(
    policies: Mapping[str, NetworkWeights], decision: Decision, model: EmbeddedModel, directory: Path
) -> list[Path]:
    """Writes header, source and object; returns their paths. See `header_text` for the arguments.

    Raises:
      PolicyError: the policy has no such form.
      ToolchainError: there is no C++ compiler, or it fails.
      OutputError: a file cannot be written.
    """
    header, source, output = (directory / f"{model.class_name}{suffix}" for suffix in (".h", ".cpp", ".o"))
    header_content, source_content = header_text(policies, decision, model), source_text(model)
    compiler = next(filter(None, map(shutil.which, _CPP_COMPILERS)), None)
    if compiler is None:
        raise ToolchainError("release model: found no C++ compiler on PATH; install the package g++")
    write_atomically(header, header_content.encode())
    write_atomically(source, source_content.encode())
    options = ["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-fno-exceptions", "-fno-rtti", "-c"]
    result = processes.run([compiler, *options, str(source), "-o", str(output)], timeout_s=_TIMEOUT_S)
    if not result.ok:
        raise ToolchainError(f"{output}: {result.describe()}; check that the package g++ is complete")
    return [header, source, output]


def write_aot(
    policy_dir: Path, model: EmbeddedModel, directory: Path, *, timeout_s: float = _AOT_TIMEOUT_S
) -> list[Path]:
    """Compiles the SavedModel in a policy's folder for this machine, in some 10 s; returns paths of header and object.

    Like LLVM's CMake files, it runs `saved_model_cli aot_compile_cpu`, which runs operations of the SavedModel, such as
    those that restore it. So the folder must be one that `save_policy` has just written, not one from elsewhere.

    Raises:
      PolicyError: there is no SavedModel, or TensorFlow cannot compile it.
      ToolchainError: TensorFlow cannot be started.
      MissingPackageError: it is not installed.
      OutputError: a file cannot be written.
    """
    require_tensorflow("the format aot")
    if not (policy_dir / SAVED_MODEL_FILE).is_file():
        raise PolicyError(
            f"{policy_dir}: expected {SAVED_MODEL_FILE} in it, found none; give the policy's folder of a training"
        )
    with scratch_directory() as scratch:
        # The command leaves files beside its output and in the temporary folder, so both are this folder.
        command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", "aot_compile_cpu"]
        options = {
            "multithreading": "false",
            "dir": str(policy_dir.resolve()),
            "tag_set": "serve",
            "signature_def_key": "action",
            "output_prefix": str(scratch / model.class_name),
            "cpp_class": f"llvm::{model.class_name}",
            "target_triple": f"{platform.machine()}-unknown-linux-gnu",
        }
        result = processes.run(
            [*command, *(word for name, value in options.items() for word in (f"--{name}", value))],
            timeout_s=timeout_s,
            memory_bytes=_AOT_MEMORY_BYTES,
            cwd=scratch,
            environment={**os.environ, "TMPDIR": str(scratch), "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        made = [scratch / f"{model.class_name}{suffix}" for suffix in (".h", ".o")]
        if result.timed_out:
            raise PolicyError(f"{directory}: TensorFlow's AOT compiler is not done after {timeout_s:.0f} s")
        if not result.ok:
            raise ToolchainError(f"TensorFlow's AOT compiler (saved_model_cli): {result.describe()}")
        if not all(path.is_file() for path in made):
            raise PolicyError(f"{directory}: TensorFlow's AOT compiler wrote no {made[0].name} and {made[1].name}")
        for path in made:
            write_atomically(directory / path.name, path.read_bytes())
        return [directory / path.name for path in made]
