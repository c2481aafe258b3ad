// Counts over the body of a function, kept up to date while calls are inlined into it.

#ifndef COMPILER_OPT_NATIVE_FUNCTION_BODY_H_
#define COMPILER_OPT_NATIVE_FUNCTION_BODY_H_

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ConstantFolding.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"
#include "llvm/IR/PassManager.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace compiler_opt {

// Counts over a set of basic blocks.
struct BodyCounts {
  int64_t Blocks = 0;
  int64_t ConditionalSuccessors = 0; // successors of conditional branches and switches
  int64_t Instructions = 0;          // without debug intrinsics and pseudo probes
  int64_t DirectCalls = 0;           // to functions that are defined in the module
  // For callsite_features.h.
  int64_t Calls = 0; // of anything but intrinsics
  int64_t Invokes = 0;
  int64_t LoadsStores = 0;
  int64_t Allocas = 0;

  BodyCounts &operator+=(const BodyCounts &Other) { return add(Other, 1); }
  BodyCounts &operator-=(const BodyCounts &Other) { return add(Other, -1); }

private:
  BodyCounts &add(const BodyCounts &Other, int64_t Sign) {
    Blocks += Sign * Other.Blocks;
    ConditionalSuccessors += Sign * Other.ConditionalSuccessors;
    Instructions += Sign * Other.Instructions;
    DirectCalls += Sign * Other.DirectCalls;
    Calls += Sign * Other.Calls;
    Invokes += Sign * Other.Invokes;
    LoadsStores += Sign * Other.LoadsStores;
    Allocas += Sign * Other.Allocas;
    return *this;
  }
};

inline bool isConditionalBranch(const llvm::Instruction &I) {
#if LLVM_VERSION_MAJOR >= 23 // It has a class for each kind of branch; LLVM 24 removes BranchInst.
  return llvm::isa<llvm::CondBrInst>(I);
#else
  return llvm::isa<llvm::BranchInst>(I) && I.getNumSuccessors() == 2;
#endif
}

inline BodyCounts countBlock(const llvm::BasicBlock &BB) {
  BodyCounts Result;
  Result.Blocks = 1;
  for (const llvm::Instruction &I : BB) {
    if (const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I)) {
      const llvm::Function *Callee = Call->getCalledFunction();
      if (Callee && Callee->isIntrinsic()) {
        if (llvm::isa<llvm::DbgInfoIntrinsic, llvm::PseudoProbeInst>(I))
          continue;
      } else {
        ++Result.Calls;
        Result.Invokes += llvm::isa<llvm::InvokeInst>(I);
        Result.DirectCalls += Callee && !Callee->isDeclaration();
      }
    } else {
      Result.LoadsStores += llvm::isa<llvm::LoadInst, llvm::StoreInst>(I);
      Result.Allocas += llvm::isa<llvm::AllocaInst>(I);
    }
    ++Result.Instructions;
  }
  const llvm::Instruction *Terminator = BB.getTerminator();
  if (isConditionalBranch(*Terminator) || llvm::isa<llvm::SwitchInst>(Terminator))
    Result.ConditionalSuccessors = Terminator->getNumSuccessors();
  return Result;
}

using BlockSet = llvm::SmallPtrSet<const llvm::BasicBlock *, 32>;

inline BlockSet reachableBlocks(const llvm::Function &F) {
  BlockSet Reached;
  llvm::SmallVector<const llvm::BasicBlock *, 32> Worklist;
  Worklist.push_back(&F.getEntryBlock());
  Reached.insert(&F.getEntryBlock());
  while (!Worklist.empty())
    for (const llvm::BasicBlock *Successor : successors(Worklist.pop_back_val()))
      if (Reached.insert(Successor).second)
        Worklist.push_back(Successor);
  return Reached;
}

// What is cached about a function until a pass invalidates it.
struct FunctionBody {
  BodyCounts Counts;                    // over the blocks that LLVM considers reachable
  int64_t NumExcessBlocks = 0;          // `Counts.Blocks` minus the blocks that are in fact reachable
  bool IsAllReachable = true;           // no block of the function is unreachable
  std::optional<BlockSet> Reachable;    // computed on demand
  std::optional<bool> HasRepeatedLoads; // see `hasRepeatedLoads`; computed on demand
  std::optional<int64_t> Uses;          // of the function, when they were first requested

  void count(const llvm::Function &F) {
    for (const llvm::BasicBlock *BB : reachableBlocks(F))
      Counts += countBlock(*BB);
    onCountsChanged(F);
  }

  // Updates everything that depends on the counts and on the blocks they cover.
  void onCountsChanged(const llvm::Function &F) {
    IsAllReachable = Counts.Blocks - NumExcessBlocks == static_cast<int64_t>(F.size());
    Reachable.reset();
    HasRepeatedLoads.reset();
  }
};

// Whether LLVM's cost analysis, when it comes to this instruction, stops to eliminate loads, whatever the arguments are.
inline bool endsLoadElimination(const llvm::Instruction &I) {
  if (const auto *Store = llvm::dyn_cast<llvm::StoreInst>(&I)) {
    // Other pointers may be arguments: stores to a variable of the caller may disappear.
    const llvm::Value *Base = Store->getPointerOperand();
    while (const auto *Address = llvm::dyn_cast<llvm::GEPOperator>(Base))
      Base = Address->getPointerOperand();
    return llvm::isa<llvm::GlobalVariable, llvm::AllocaInst, llvm::LoadInst>(Base);
  }
  const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I);
  const llvm::Function *Callee = Call ? Call->getCalledFunction() : nullptr;
  if (!Callee || Callee->isIntrinsic())
    return llvm::isa<llvm::MemIntrinsic>(I);
  return !Call->onlyReadsMemory() && Callee != I.getFunction() && !llvm::canConstantFoldCallTo(Call, Callee);
}

// Whether two loads may have the same pointer operand where LLVM's cost analysis still eliminates the second.
inline bool hasRepeatedLoads(const llvm::Function &F) {
  llvm::SmallPtrSet<const llvm::Value *, 32> Pointers;
  llvm::SmallSetVector<const llvm::BasicBlock *, 16> Blocks;
  Blocks.insert(&F.getEntryBlock());
  for (size_t Index = 0; Index < Blocks.size(); ++Index) {
    const llvm::BasicBlock *const BB = Blocks[Index];
    const auto End = std::find_if(BB->begin(), BB->end(), endsLoadElimination);
    for (const llvm::Instruction &I : llvm::make_range(BB->begin(), End))
      if (const auto *Load = llvm::dyn_cast<llvm::LoadInst>(&I))
        if (!Pointers.insert(Load->getPointerOperand()).second)
          return true;
    if (End == BB->end())
      Blocks.insert(succ_begin(BB), succ_end(BB));
  }
  return false;
}

class FunctionBodyAnalysis : public llvm::AnalysisInfoMixin<FunctionBodyAnalysis> {
public:
  using Result = FunctionBody;

  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) {
    FunctionBody Body;
    Body.count(F);
    return Body;
  }

private:
  friend llvm::AnalysisInfoMixin<FunctionBodyAnalysis>;
  static inline llvm::AnalysisKey Key;
};

// The blocks of a caller that inlining a call may change, and the counts over all its other blocks.
class CallSiteRegion {
public:
  CallSiteRegion(const llvm::CallBase &CB, const BodyCounts &Caller) : Rest(Caller), CallBlock(CB.getParent()) {
    Boundary.insert(succ_begin(CallBlock), succ_end(CallBlock));
    // Inlining may split the landing pad, to share its code with calls in the callee that may throw.
    if (const auto *Invoke = llvm::dyn_cast<llvm::InvokeInst>(&CB))
      Boundary.insert(succ_begin(Invoke->getUnwindDest()), succ_end(Invoke->getUnwindDest()));
    Boundary.remove(CallBlock);
#if LLVM_VERSION_MAJOR >= 21
    // When the call's result becomes known, an indirect call that uses it may become direct.
    for (const llvm::User *User : CB.users())
      UserBlocks.insert(llvm::cast<llvm::Instruction>(User)->getParent());
#endif
    BlockSet Changing(Boundary.begin(), Boundary.end());
    Changing.insert(UserBlocks.begin(), UserBlocks.end());
    Changing.insert(CallBlock);
    Changing.insert(&CallBlock->getParent()->getEntryBlock()); // receives the callee's allocas
    for (const llvm::BasicBlock *BB : Changing)
      Rest -= countBlock(*BB);
  }

  // The caller's counts after inlining; nullopt if blocks outside the region may have become unreachable.
  std::optional<BodyCounts> countAfterInlining() const {
    BodyCounts Counts = Rest;
    BlockSet Visited;
    llvm::SmallVector<const llvm::BasicBlock *, 16> Worklist;
    const auto Visit = [&](const llvm::BasicBlock *BB) {
      if (!Visited.insert(BB).second)
        return;
      Counts += countBlock(*BB);
      Worklist.push_back(BB);
    };
    Visit(CallBlock);
    size_t NumBoundaryReached = 0;
    while (!Worklist.empty()) {
      const llvm::BasicBlock *BB = Worklist.pop_back_val();
      const bool IsBoundary = Boundary.contains(BB);
      NumBoundaryReached += IsBoundary;
      for (const llvm::BasicBlock *Successor : successors(BB))
        if (!IsBoundary || Boundary.contains(Successor))
          Visit(Successor);
    }
    if (NumBoundaryReached != Boundary.size())
      return std::nullopt;
    Visit(&CallBlock->getParent()->getEntryBlock());
    for (const llvm::BasicBlock *BB : UserBlocks)
      Visit(BB);
    return Counts;
  }

  // The caller's counts after inlining, whatever has become unreachable, with the errors of FunctionPropertiesUpdater.
  // It counts the users of the call's result even if they are unreachable, and subtracts all blocks that are only
  // reachable from unreachable ones, including new blocks that were never added.
  BodyCounts countAfterInlining(const BlockSet &Reachable) const {
    using Blocks = llvm::SmallSetVector<const llvm::BasicBlock *, 16>;
    BodyCounts Counts = Rest;
    Blocks Included, Excluded;
    Included.insert(&CallBlock->getParent()->getEntryBlock());
    Included.insert(UserBlocks.begin(), UserBlocks.end());
    Included.remove(CallBlock);
    for (const llvm::BasicBlock *BB : Boundary)
      (Reachable.contains(BB) ? Included : Excluded).insert(BB);
    // The successors of these are in `Rest`; the blocks themselves are not.
    const size_t NumIncludedAlone = Included.size(), NumExcludedAlready = Excluded.size();
    Included.insert(CallBlock);
    for (size_t Index = 0; Index < Included.size(); ++Index) {
      const llvm::BasicBlock *BB = Included[Index];
      Counts += countBlock(*BB);
      if (Index >= NumIncludedAlone)
        Included.insert(succ_begin(BB), succ_end(BB));
    }
    for (size_t Index = 0; Index < Excluded.size(); ++Index) {
      const llvm::BasicBlock *BB = Excluded[Index];
      if (Index >= NumExcludedAlready)
        Counts -= countBlock(*BB);
      for (const llvm::BasicBlock *Successor : successors(BB))
        if (!Reachable.contains(Successor))
          Excluded.insert(Successor);
    }
    return Counts;
  }

private:
  BodyCounts Rest; // counts over the blocks outside the region
  const llvm::BasicBlock *CallBlock;
  llvm::SmallSetVector<const llvm::BasicBlock *, 4> Boundary;   // the region's exits: their successors do not change
  llvm::SmallSetVector<const llvm::BasicBlock *, 4> UserBlocks; // contain users of the call's result
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_BODY_H_
