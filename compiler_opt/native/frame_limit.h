// Keeps the frames of recursive functions small: with a helper's buffer in each of them, a program that recurses deeply
// overflows its stack. LLVM's own cost analysis limits the same (`recursive-inline-max-stacksize`), to a kilobyte.

#ifndef COMPILER_OPT_NATIVE_FRAME_LIMIT_H_
#define COMPILER_OPT_NATIVE_FRAME_LIMIT_H_

#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace compiler_opt {

// The bytes of variables on the stack up to which policies inline into recursive functions.
inline constexpr uint64_t kMaxRecursiveFrameBytes = 128;

// The bytes of a function's variables on the stack; more than the limit if one has no constant size.
inline uint64_t frameBytes(const llvm::Function &F) {
  uint64_t Bytes = 0;
  for (const llvm::Instruction &I : F.getEntryBlock()) {
    const auto *Alloca = llvm::dyn_cast<llvm::AllocaInst>(&I);
    if (!Alloca)
      continue;
    const std::optional<llvm::TypeSize> Size = Alloca->getAllocationSize(F.getParent()->getDataLayout());
    if (!Size || Size->isScalable())
      return kMaxRecursiveFrameBytes + 1;
    Bytes += std::min(Size->getFixedValue(), kMaxRecursiveFrameBytes + 1);
  }
  return Bytes;
}

// Whether the function calls itself, perhaps through others of its module.
inline bool isRecursive(llvm::LazyCallGraph &CG, llvm::Function &F) {
  llvm::LazyCallGraph::Node &Node = CG.get(F);
  if (const llvm::LazyCallGraph::SCC *Component = CG.lookupSCC(Node); Component && Component->size() > 1)
    return true;
  return std::any_of(Node.populate().begin(), Node.populate().end(), [&Node](const llvm::LazyCallGraph::Edge &Edge) {
    return Edge.isCall() && &Edge.getNode() == &Node;
  });
}

// Whether inlining the call would bring the frame of a recursive caller above the limit.
inline bool exceedsFrameLimit(llvm::LazyCallGraph &CG, llvm::CallBase &CB) {
  const uint64_t Added = frameBytes(*CB.getCalledFunction());
  return Added != 0 && Added + frameBytes(*CB.getCaller()) > kMaxRecursiveFrameBytes && isRecursive(CG, *CB.getCaller());
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FRAME_LIMIT_H_
