"""A policy as a C++ class that LLVM compiles in, with the interface of TensorFlow's AOT models and no TensorFlow.

    InlinerSizeModel.h      the class `llvm::InlinerSizeModel`, weights and evaluator in it; needs no other file
    InlinerSizeModel.cpp    an object's worth of it, for builds that want header and object
    InlinerSizeModel.o      that object

LLVM's `ReleaseModeModelRunner` takes such a class; docs/deploy.md tells how to build LLVM with it.
"""

import dataclasses
import re
import shutil
from collections.abc import Mapping, Sequence
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
    """How LLVM knows the model of a problem.

    Attributes:
      class_name: of the class in namespace `llvm`, of its header and object, and in upper case of the cmake variables.
      advice: the decision's tensor.
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
"""By problem: the names that `llvm/lib/{Analysis,CodeGen}/CMakeLists.txt` gives them."""

CPP_COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300.0
_C_TYPES = {_INT64: "int64_t", np.dtype("i4"): "int32_t", np.dtype("f4"): "float", np.dtype("f8"): "double"}


def header_text(weights: NetworkWeights, model: EmbeddedModel, inputs: Sequence[TensorSpec] | None = None) -> str:
    """The header, complete in itself.

    Args:
      weights: what it decides by.
      model: what LLVM calls it.
      inputs: the tensors that the network sees, in its order; by default scalar int64 by its features' names.

    Raises:
      PolicyError: the inputs are not the network's, or the network is too large.
    """
    if inputs is None:
        inputs = [TensorSpec(name, _INT64, (1,)) for name in weights.features]
    if tuple(spec.name for spec in inputs) != weights.features:
        raise PolicyError("release model: its inputs are not the features of the policy, in their order")
    for spec in inputs:
        if not re.fullmatch(r"[\w.\-]+", spec.name, re.ASCII):
            raise PolicyError(f"release model: {spec.name!r} is no name of a feature")
        if spec.dtype != _INT64 or spec.num_elements != 1:
            raise PolicyError(f"release model: expected scalar int64 features, found {spec.to_json()}")
    blob = native_blob(weights)
    arguments = "".join(
        f'      {{"{spec.name}", sizeof({_C_TYPES[spec.dtype]}), {spec.num_elements}}},\n' for spec in inputs
    )
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
    """The source of the object that belongs to the header; with it the header compiles on its own."""
    return (
        f'#include "{model.class_name}.h"\n\n'
        f"// The class is complete in its header; this is for builds that want an object as well.\n"
        f"template class compiler_opt::ReleaseModel<compiler_opt::{model.class_name}Policy>;\n"
    )


def write_release_model(weights: NetworkWeights, model: EmbeddedModel, directory: Path) -> list[Path]:
    """Writes header, source and object.

    Returns:
      the three files.

    Raises:
      PolicyError: the policy has not this form.
      ToolchainError: there is no C++ compiler, or it fails.
      OutputError: a file cannot be written.
    """
    header, source, output = (directory / f"{model.class_name}{suffix}" for suffix in (".h", ".cpp", ".o"))
    header_content, source_content = header_text(weights, model), source_text(model)
    compiler = _cpp_compiler()
    write_atomically(header, header_content.encode())
    write_atomically(source, source_content.encode())
    options = ["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-fno-exceptions", "-fno-rtti", "-c"]
    result = processes.run([compiler, *options, str(source), "-o", str(output)], timeout_s=_TIMEOUT_S)
    if not result.ok:
        raise ToolchainError(f"{output}: {result.describe()}; see that the package g++ is whole")
    return [header, source, output]


def _cpp_compiler() -> str:
    for name in CPP_COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise ToolchainError("no C++ compiler on PATH, which the object of a release model needs; install the package g++")


def _own_source(name: str) -> str:
    """One of our headers, without the inclusion of the one that is put before it."""
    text = (include_directory() / name).read_text(encoding="utf-8")
    return text.replace('#include "policy_network.h"\n\n', "")
