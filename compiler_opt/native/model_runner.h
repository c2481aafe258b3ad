// Replaces LLVM's interactive model runner: its decisions are then made by functions of this library.
//
// LLVM's ML advisors for the register allocator compute their features into an `InteractiveModelRunner` and call its
// virtual function `evaluateUntyped` for a decision. The functions below overwrite this entry of the class's virtual
// table.

#ifndef COMPILER_OPT_NATIVE_MODEL_RUNNER_H_
#define COMPILER_OPT_NATIVE_MODEL_RUNNER_H_

// Before all headers, which may not exist for another target.
#if !defined(__x86_64__)
#error "the register-allocation plugin needs x86-64, for the layout of its member pointers; use the channel"
#endif

#include "plugin_environment.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/Analysis/TensorSpec.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace compiler_opt {

// Stores a pointer to a private member when the library is loaded: access checks do not apply to explicit
// instantiation.
template <auto Member, auto &Storage> struct MemberAccess {
  MemberAccess() { Storage = Member; }
  static MemberAccess Instance;
};
template <auto Member, auto &Storage> MemberAccess<Member, Storage> MemberAccess<Member, Storage>::Instance;

using ModelRunner = llvm::InteractiveModelRunner;
inline const std::vector<llvm::TensorSpec> ModelRunner::*InputSpecs;
inline const llvm::TensorSpec ModelRunner::*OutputSpec;
template struct MemberAccess<&ModelRunner::InputSpecs, InputSpecs>;
template struct MemberAccess<&ModelRunner::OutputSpec, OutputSpec>;

// The index of a virtual function in its class's virtual table. A pointer to member holds its offset plus one (Itanium
// C++ ABI, 2.3; other targets, such as AArch64, mark virtual functions differently).
template <typename Member> size_t virtualTableIndex(Member Function) {
  static_assert(sizeof Function == 2 * sizeof(uintptr_t));
  uintptr_t Offset;
  std::memcpy(&Offset, &Function, sizeof Offset);
  return (Offset - 1) / sizeof(void *);
}

// Derives from MLModelRunner because `evaluateUntyped` is protected.
class VirtualTableIndices : public llvm::MLModelRunner {
public:
  static size_t evaluate() { return virtualTableIndex(&VirtualTableIndices::evaluateUntyped); }
  static size_t switchContext() { return virtualTableIndex(&VirtualTableIndices::MLModelRunner::switchContext); }
};

extern "C" void *ModelRunnerVirtualTable[] __asm__("_ZTVN4llvm22InteractiveModelRunnerE");

// Makes all model runners of the process call these functions.
inline void replaceModelRunner(void *(*Evaluate)(ModelRunner *),
                               void (*SwitchContext)(ModelRunner *, llvm::StringRef)) {
  void **Functions = ModelRunnerVirtualTable + 2; // after the offset to top and the type information
  const size_t EvaluateIndex = VirtualTableIndices::evaluate();
  const size_t SwitchContextIndex = VirtualTableIndices::switchContext();
  const uintptr_t Page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t Begin = uintptr_t(Functions) / Page * Page;
  const uintptr_t End = uintptr_t(Functions + std::max(EvaluateIndex, SwitchContextIndex) + 1);
  if (mprotect(reinterpret_cast<void *>(Begin), End - Begin, PROT_READ | PROT_WRITE) != 0)
    fail(std::string("cannot replace LLVM's model runner: ") + std::strerror(errno));
  Functions[EvaluateIndex] = reinterpret_cast<void *>(Evaluate);
  Functions[SwitchContextIndex] = reinterpret_cast<void *>(SwitchContext);
  mprotect(reinterpret_cast<void *>(Begin), End - Begin, PROT_READ);
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_MODEL_RUNNER_H_
