// Features of a call site that LLVM's MLInlineAdvisor does not have; llvm/plugin_features.py has the same names.
//
// They say how many bytes inlining may cost or save: whether the body of the callee remains, which copies the linker
// folds, what the callee contains, and what kind of call this is. All are int64 scalars. They are computed from the
// counts that FeatureAdvisor maintains and from bounded walks over uses and blocks, without further analyses, and
// depend on no order of pointers.

#ifndef COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_
#define COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_

#include "function_body.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace compiler_opt {

enum class CallSiteFeature : size_t {
  CallerLinkage,
  CalleeLinkage,
  CalleeCallsInModule,
  CalleeCallsInCaller,
  CalleeOtherUses,
  IsCalleeDropped,
  CallerInstructions,
  CalleeInstructions,
  CalleeDirectCalls,
  CalleeCalls,
  CalleeLoadsStores,
  CalleeAllocas,
  CalleeInvokes,
  CallArguments,
  IsInvoke,
  IsNoReturn,
  IsResultUsed,
  IsInLoop,
  IsCold,
  DefaultDecision, // last: it alone needs an analysis, and is computed only on request
};

inline constexpr const char *kCallSiteFeatureNames[] = {
    "caller_linkage",
    "callee_linkage",
    "callee_calls_in_module",
    "callee_calls_in_caller",
    "callee_other_uses",
    "is_callee_dropped",
    "caller_instructions",
    "callee_instructions",
    "callee_direct_calls",
    "callee_calls",
    "callee_loads_stores",
    "callee_allocas",
    "callee_invokes",
    "call_arguments",
    "is_invoke",
    "is_no_return",
    "is_result_used",
    "is_in_loop",
    "is_cold",
    "default_decision",
};
inline constexpr size_t kNumCallSiteFeatures = std::size(kCallSiteFeatureNames);
static_assert(kNumCallSiteFeatures == static_cast<size_t>(CallSiteFeature::DefaultDecision) + 1);

// Limits of the walks, so that no call site costs more than some microseconds.
inline constexpr int kMaxUses = 512, kMaxLoopBlocks = 32, kMaxPredecessors = 16;

// 0: external; 1: the linker folds copies (linkonce, weak); 2: local.
inline int64_t linkageOf(const llvm::Function &F) {
  if (F.hasLocalLinkage())
    return 2;
  return F.hasLinkOnceLinkage() || F.hasWeakLinkage();
}

struct CalleeUses {
  int64_t Calls = 0;         // direct calls, including this one
  int64_t CallsInCaller = 0; // those in the same caller
  int64_t Others = 0;        // uses as a value, such as in a vtable

  explicit CalleeUses(const llvm::CallBase &CB) {
    const llvm::Function *const Caller = CB.getCaller();
    int Left = kMaxUses;
    for (const llvm::Use &U : CB.getCalledFunction()->uses()) {
      if (!Left--)
        break;
      const auto *Call = llvm::dyn_cast<llvm::CallBase>(U.getUser());
      if (!Call || !Call->isCallee(&U)) {
        ++Others;
        continue;
      }
      ++Calls;
      CallsInCaller += Call->getCaller() == Caller;
    }
  }
};

// Whether the block is on a cycle, found by visiting up to `kMaxLoopBlocks` blocks.
inline bool isInLoop(const llvm::BasicBlock *BB) {
  llvm::SmallPtrSet<const llvm::BasicBlock *, kMaxLoopBlocks> Visited;
  llvm::SmallVector<const llvm::BasicBlock *, kMaxLoopBlocks> Worklist{BB};
  for (size_t Index = 0; Index < Worklist.size(); ++Index)
    for (const llvm::BasicBlock *Successor : successors(Worklist[Index])) {
      if (Successor == BB)
        return true;
      if (Worklist.size() < kMaxLoopBlocks && Visited.insert(Successor).second)
        Worklist.push_back(Successor);
    }
  return false;
}

// Whether the call is rarely executed: by its attributes, because its block ends the program or unwinds, or because a
// chain of unique predecessors leads to a landing pad.
inline bool isCold(const llvm::CallBase &CB) {
  if (CB.hasFnAttr(llvm::Attribute::Cold) || CB.doesNotReturn())
    return true;
  const llvm::BasicBlock *BB = CB.getParent();
  if (llvm::isa<llvm::UnreachableInst, llvm::ResumeInst, llvm::CleanupReturnInst>(BB->getTerminator()))
    return true;
  for (int Step = 0; BB && Step < kMaxPredecessors; ++Step, BB = BB->getUniquePredecessor())
    if (BB->isEHPad())
      return true;
  return false;
}

// Sets `Features[0]` to `Features[kNumCallSiteFeatures - 2]`, all but the default decision.
inline void setCallSiteFeatures(const llvm::CallBase &CB, const BodyCounts &CallerCounts,
                                const BodyCounts &CalleeCounts, int64_t *Features) {
  const llvm::Function &Caller = *CB.getCaller(), &Callee = *CB.getCalledFunction();
  const auto Set = [Features](CallSiteFeature Feature, int64_t Value) {
    Features[static_cast<size_t>(Feature)] = Value;
  };
  const CalleeUses Uses(CB);
  Set(CallSiteFeature::CallerLinkage, linkageOf(Caller));
  Set(CallSiteFeature::CalleeLinkage, linkageOf(Callee));
  Set(CallSiteFeature::CalleeCallsInModule, Uses.Calls);
  Set(CallSiteFeature::CalleeCallsInCaller, Uses.CallsInCaller);
  Set(CallSiteFeature::CalleeOtherUses, Uses.Others);
  Set(CallSiteFeature::IsCalleeDropped, Callee.isDiscardableIfUnused() && Callee.hasOneUse());
  Set(CallSiteFeature::CallerInstructions, CallerCounts.Instructions);
  Set(CallSiteFeature::CalleeInstructions, CalleeCounts.Instructions);
  Set(CallSiteFeature::CalleeDirectCalls, CalleeCounts.DirectCalls);
  Set(CallSiteFeature::CalleeCalls, CalleeCounts.Calls);
  Set(CallSiteFeature::CalleeLoadsStores, CalleeCounts.LoadsStores);
  Set(CallSiteFeature::CalleeAllocas, CalleeCounts.Allocas);
  Set(CallSiteFeature::CalleeInvokes, CalleeCounts.Invokes);
  Set(CallSiteFeature::CallArguments, CB.arg_size());
  Set(CallSiteFeature::IsInvoke, llvm::isa<llvm::InvokeInst>(CB));
  Set(CallSiteFeature::IsNoReturn, CB.doesNotReturn());
  Set(CallSiteFeature::IsResultUsed, !CB.use_empty());
  Set(CallSiteFeature::IsInLoop, isInLoop(CB.getParent()));
  Set(CallSiteFeature::IsCold, isCold(CB));
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_
