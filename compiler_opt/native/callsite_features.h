// Features of a call site that LLVM's MLInlineAdvisor does not have; llvm/plugin_features.py has the same names.
//
// They say how many bytes inlining may cost or save: whether the body of the callee remains, which copies the linker
// folds, what the callee contains, and what kind of call this is. Those of hotness say how often code runs. All are
// int64 scalars, and depend on no order of pointers. Most are computed from the counts that FeatureAdvisor maintains and
// from bounded walks over uses and blocks; the last five need further analyses, and are computed only on request.

#ifndef COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_
#define COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_

#include "function_body.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

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
  CalleeCost,
  FurtherCallsPercent,
  CallSiteFrequency, // from here on, further analyses are needed
  CallSiteHotness,
  CallerHotness,
  CalleeHotness,
  CallSiteCount,
  DefaultDecision,
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
    "callee_cost",
    "further_calls_percent",
    "callsite_frequency",
    "callsite_hotness",
    "caller_hotness",
    "callee_hotness",
    "callsite_count",
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

// LLVM's costs of a call, in its units: an instruction is 5.
struct CallCosts {
  int64_t Growth;   // of the caller, if the call is inlined
  int64_t CallSite; // of the call itself, negative
  int64_t Promoted; // of loads and stores that Growth leaves out, since their variable should become a register
};

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

// What a function costs beside its instructions, such as its unwind entry and its alignment, in LLVM's units of cost.
inline constexpr int64_t kFunctionCost = 25;

inline constexpr int64_t kMaxPercent = 10000;

// What inlining the second and further calls of a local callee adds, if each costs as much as this one, in percent of
// what inlining all of them saves: one call and the function. Over 100, the module grows. 0 for callees that are not
// local, which may be needed elsewhere. Of the loads and stores that LLVM expects to become registers, half count: in
// large callers there are not enough registers.
inline int64_t furtherCallsPercent(const llvm::Function &Callee, const CalleeUses &Uses, const CallCosts &Costs) {
  if (!Callee.hasLocalLinkage())
    return 0;
  const int64_t Growth = Costs.Growth + Costs.Promoted / 2;
  if (Uses.Others) // The function remains.
    return Growth > 0 ? kMaxPercent : 0;
  const int64_t Saved = std::max<int64_t>(kFunctionCost - Costs.CallSite, 1);
  const int64_t Percent = 100 * (Uses.Calls - 1) * Growth / Saved;
  return std::clamp(Percent, -kMaxPercent, kMaxPercent);
}

// Sets `Features[0]` to `Features[CallSiteFrequency - 1]`: all that need no further analyses.
inline void setCallSiteFeatures(const llvm::CallBase &CB, const BodyCounts &CallerCounts,
                                const BodyCounts &CalleeCounts, const CallCosts &Costs, int64_t *Features) {
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
  Set(CallSiteFeature::CalleeCost, Costs.Growth - Costs.CallSite);
  Set(CallSiteFeature::FurtherCallsPercent, furtherCallsPercent(Callee, Uses, Costs));
}

// How often a block runs for each call of its function, in thousandths, as far as LLVM can tell.
inline constexpr double kFrequencyUnit = 1000, kMaxFrequency = 1e9;

// Parts of all that runs, in millionths: code is the hotter, the smaller a part at least as hot code makes up.
inline constexpr int kHotParts[] = {999999, 999900, 999000, 990000, 950000, 900000, 800000, 600000, 400000, 200000};

// 0: nothing is known; 1: it never ran; 2: it ran; then one more for each of `kHotParts` that it is needed for.
inline int64_t hotness(llvm::ProfileSummaryInfo &PSI, std::optional<uint64_t> Count) {
  if (!PSI.hasProfileSummary() || !Count)
    return 0;
  if (*Count == 0)
    return 1;
  return 2 + std::count_if(std::begin(kHotParts), std::end(kHotParts),
                           [&](int Part) { return PSI.isHotCountNthPercentile(Part, *Count); });
}

inline std::optional<uint64_t> entryCount(const llvm::Function &F) {
  if (const auto Count = F.getEntryCount())
    return Count->getCount();
  return std::nullopt;
}

// Sets the features of hotness. `BFI` is that of the caller.
inline void setHotness(const llvm::CallBase &CB, llvm::BlockFrequencyInfo &BFI, llvm::ProfileSummaryInfo &PSI,
                       int64_t *Features) {
  const auto Set = [Features](CallSiteFeature Feature, int64_t Value) {
    Features[static_cast<size_t>(Feature)] = Value;
  };
  const double Entry = double(BFI.getEntryFreq().getFrequency());
  const double Block = double(BFI.getBlockFreq(CB.getParent()).getFrequency());
  const double Frequency = Entry > 0 ? std::min(kFrequencyUnit * Block / Entry, kMaxFrequency) : 0;
  Set(CallSiteFeature::CallSiteFrequency, std::llround(Frequency));
  const std::optional<uint64_t> Count = BFI.getBlockProfileCount(CB.getParent());
  Set(CallSiteFeature::CallSiteHotness, hotness(PSI, Count));
  Set(CallSiteFeature::CallSiteCount, int64_t(std::min<uint64_t>(Count.value_or(0), INT64_MAX)));
  Set(CallSiteFeature::CallerHotness, hotness(PSI, entryCount(*CB.getCaller())));
  Set(CallSiteFeature::CalleeHotness, hotness(PSI, entryCount(*CB.getCalledFunction())));
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_CALLSITE_FEATURES_H_
