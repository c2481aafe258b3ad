"""A policy as a C++ class to compile into LLVM: the interface of TensorFlow's AOT models without TensorFlow.

    InlinerSizeModel.h      the class `llvm::InlinerSizeModel` with weights and evaluator; needs no other file
    InlinerSizeModel.cpp    instantiates it, for builds that expect header and object
    InlinerSizeModel.o      that object

LLVM's `ReleaseModeModelRunner` takes such a class; docs/deploy.md describes how to build LLVM with it.
"""

import dataclasses
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.files import write_atomically
from compiler_opt.llvm import processes
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.native import byte_rows, include_directory, native_blob
from compiler_opt.tensor_spec import TensorSpec

_INT64 = np.dtype("i8")


@dataclasses.dataclass(frozen=True)
class EmbeddedModel:
    """The names of a problem's model in LLVM.

    Attributes:
      class_name: of the class in namespace `llvm`, of its header and object, and in upper case of the CMake variables.
      advice: the tensor of a decision.
    """

    class_name: str
    advice: TensorSpec

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.class_name, re.ASCII):
            raise PolicyError(f"release model: expected the name of a C++ class, found {self.class_name!r}")


EMBEDDED_MODELS: Mapping[str, EmbeddedModel] = {
    "inlining": EmbeddedModel("InlinerSizeModel", TensorSpec("inlining_decision", _INT64, (1,))),
    "regalloc_eviction": EmbeddedModel("RegAllocEvictModel", TensorSpec("index_to_evict", _INT64, (1,))),
    "regalloc_priority": EmbeddedModel("RegAllocPriorityModel", TensorSpec("priority", np.dtype("f4"), (1,))),
}
"""By problem, as in `llvm/lib/{Analysis,CodeGen}/CMakeLists.txt`."""

_CPP_COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300.0
_C_TYPES = {_INT64: "int64_t", np.dtype("f4"): "float"}


def header_text(weights: NetworkWeights, model: EmbeddedModel) -> str:
    """The self-contained header of a policy whose features are scalar integers.

    Raises:
      PolicyError: a feature has an invalid name, or the network is too large.
    """
    for name in weights.features:
        if not re.fullmatch(r"[\w.\-]+", name, re.ASCII):
            raise PolicyError(f"release model: expected the name of a feature, found {name!r}")
    blob = native_blob(weights)
    arguments = "".join(f'      {{"{name}", sizeof(int64_t), 1}},\n' for name in weights.features)
    name = model.class_name
    guard = f"COMPILER_OPT_{name.upper()}_H_"
    sources = "\n".join(_own_source(file) for file in ("policy_network.h", "release_model.h"))
    return f"""// llvm::{name}: a trained policy for llvm::ReleaseModeModelRunner, without TensorFlow.
// Made by compiler_opt (export/release_model.py); weights {weights.checksum()}.

#ifndef {guard}
#define {guard}

{sources}
namespace compiler_opt {{

struct {name}Policy {{
  using Result = {_C_TYPES[model.advice.dtype]};
  static constexpr Tensor kArguments[] = {{
{arguments}  }};
  static constexpr const char *kResult = "{model.advice.name}";
  static constexpr size_t kBlobSize = {len(blob)};
  static const unsigned char *blob() {{
    alignas(64) static constexpr unsigned char bytes[kBlobSize] = {{
{byte_rows(blob)}    }};
    return bytes;
  }}
}};

}}  // namespace compiler_opt

namespace llvm {{

class {name} final : public compiler_opt::ReleaseModel<compiler_opt::{name}Policy> {{}};

}}  // namespace llvm

#endif  // {guard}
"""


def source_text(model: EmbeddedModel) -> str:
    """The source of the object: instantiates the class of the header."""
    return (
        f'#include "{model.class_name}.h"\n\n'
        f"// The class is complete in its header; this is for builds that want an object as well.\n"
        f"template class compiler_opt::ReleaseModel<compiler_opt::{model.class_name}Policy>;\n"
    )


def write_release_model(weights: NetworkWeights, model: EmbeddedModel, directory: Path) -> list[Path]:
    """Writes header, source and object.

    Returns:
      paths of the three files.

    Raises:
      PolicyError: the policy has no such form.
      ToolchainError: there is no C++ compiler, or it fails.
      OutputError: a file cannot be written.
    """
    header, source, output = (directory / f"{model.class_name}{suffix}" for suffix in (".h", ".cpp", ".o"))
    header_content, source_content = header_text(weights, model), source_text(model)
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


def _own_source(name: str) -> str:
    """A header of ours without its `#include` of the one that precedes it."""
    text = (include_directory() / name).read_text(encoding="utf-8")
    return text.replace('#include "policy_network.h"\n\n', "")
