// The heights of functions in the call graph before inlining.

#ifndef COMPILER_OPT_NATIVE_CALL_GRAPH_HEIGHTS_H_
#define COMPILER_OPT_NATIVE_CALL_GRAPH_HEIGHTS_H_

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/GraphTraits.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/AbstractCallSite.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace compiler_opt {

struct CallGraphFunction {
  static constexpr int64_t kUnknown = -1;

  llvm::Function *F = nullptr;                       // null: stands for all callers outside the module
  llvm::SmallVector<CallGraphFunction *, 4> Callees; // those of direct calls first, then callbacks
  size_t NumDirectCalls = 0;
  int64_t Height = kUnknown;
};

} // namespace compiler_opt

template <> struct llvm::GraphTraits<compiler_opt::CallGraphFunction *> {
  using NodeRef = compiler_opt::CallGraphFunction *;
  using ChildIteratorType = NodeRef *;
  static NodeRef getEntryNode(NodeRef Node) { return Node; }
  static ChildIteratorType child_begin(NodeRef Node) { return Node->Callees.begin(); }
  static ChildIteratorType child_end(NodeRef Node) { return Node->Callees.end(); }
};

namespace compiler_opt {

// Calls `Visit(Function &, unsigned Height)` for each defined function that may be called. The height is the length of
// the longest chain of direct calls from the function; calls within an SCC do not count.
template <typename Visitor> void visitHeights(llvm::Module &M, Visitor Visit) {
  std::vector<CallGraphFunction> Functions(M.size() + 1);
  llvm::DenseMap<const llvm::Function *, CallGraphFunction *> ByFunction;
  ByFunction.reserve(static_cast<unsigned>(M.size()));
  CallGraphFunction &Outside = Functions.front();
  size_t End = 1;
  for (llvm::Function &F : M) {
    if (F.isDeclaration())
      continue;
    CallGraphFunction &Node = Functions[End++];
    Node.F = &F;
    ByFunction[&F] = &Node;
    if (!F.hasLocalLinkage() || F.hasAddressTaken(nullptr, /*IgnoreCallbackUses=*/true))
      Outside.Callees.push_back(&Node);
  }
  llvm::SmallVector<CallGraphFunction *, 4> Callbacks;
  for (size_t Index = 1; Index < End; ++Index) {
    CallGraphFunction &Node = Functions[Index];
    for (llvm::BasicBlock &BB : *Node.F)
      for (llvm::Instruction &I : BB) {
        const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I);
        if (!Call)
          continue;
        const llvm::Function *Callee = Call->getCalledFunction();
        if (!Callee)
          continue;
        if (!Callee->isDeclaration())
          Node.Callees.push_back(ByFunction.lookup(Callee));
        // Metadata declares callbacks; few functions have any.
        if (Callee->hasMetadata())
          forEachCallbackFunction(*Call, [&](llvm::Function *Callback) {
            if (!Callback->isDeclaration())
              Callbacks.push_back(ByFunction.lookup(Callback));
          });
      }
    Node.NumDirectCalls = Node.Callees.size();
    Node.Callees.append(Callbacks.begin(), Callbacks.end());
    Callbacks.clear();
  }
  for (auto SCC = llvm::scc_begin(&Outside); !SCC.isAtEnd(); ++SCC) {
    int64_t Height = 0;
    for (const CallGraphFunction *Node : *SCC)
      for (size_t Call = 0; Call < Node->NumDirectCalls; ++Call)
        Height = std::max(Height, Node->Callees[Call]->Height + 1);
    for (CallGraphFunction *Node : *SCC) {
      Node->Height = Height;
      if (Node->F)
        Visit(*Node->F, static_cast<unsigned>(Height));
    }
  }
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_CALL_GRAPH_HEIGHTS_H_
