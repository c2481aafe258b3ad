// An inline advisor that computes the features of LLVM's MLInlineAdvisor at a fraction of the cost.
//
// LLVM's advisor maintains all of FunctionPropertiesInfo, for which it updates dominators and loops after each
// inlining. The features only need four counts over a function's body and the set of its reachable blocks. This advisor
// maintains only those. It counts at the same moments and with the same omissions, so every feature has the same value
// as in LLVM's advisor, with one known exception. `benchmarks/feature_values.py` compares the two over a corpus.
//
// The exception exists in LLVM 22 but not in 19: in code with many exceptions and calls that never return, LLVM may
// consider reachable blocks unreachable, and then counts one or two blocks less. The cause seems to be its dominator
// tree, whose updates omit landing pads that inlining has split; imitating this would require maintaining that tree.

#ifndef COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_
#define COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_

#include "llvm/Config/llvm-config.h"

// Older versions lack two features and have other classes; `llvm/inliner_plugin.py` checks the version before it
// compiles.
#if LLVM_VERSION_MAJOR < 19
#error "the inliner plugin needs LLVM 19 or later"
#endif

#include "call_graph_heights.h"
#include "callsite_features.h"
#include "frame_limit.h"
#include "function_body.h"
#include "inline_cost_sum.h"
#include "shown_advice.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace compiler_opt {

// The features of this version of LLVM: first those of the cost analysis, then those counted here.
inline const std::vector<llvm::TensorSpec> &llvmFeatures() {
#if LLVM_VERSION_MAJOR >= 21
  return llvm::MLInlineAdvisor::getInitialFeatureMap();
#else
  return llvm::FeatureMap;
#endif
}

// LLVM's features, then those of callsite_features.h.
inline const std::vector<llvm::TensorSpec> &availableFeatures() {
  static const std::vector<llvm::TensorSpec> Specs = [] {
    std::vector<llvm::TensorSpec> All = llvmFeatures();
    for (const char *Name : kCallSiteFeatureNames)
      All.push_back(llvm::TensorSpec::createSpec<int64_t>(Name, {1}));
    return All;
  }();
  return Specs;
}

// The value of an LLVM option, or `Fallback` if there is no such option or, with `IfGiven`, if the user did not give it.
template <typename T> T llvmOption(llvm::StringRef Name, T Fallback, bool IfGiven = false) {
  const auto &Options = llvm::cl::getRegisteredOptions();
  const auto Position = Options.find(Name);
  if (Position == Options.end() || (IfGiven && Position->second->getNumOccurrences() == 0))
    return Fallback;
  return static_cast<llvm::cl::opt<T> *>(Position->second)->getValue();
}

// A module that has grown by more than this factor gets no more inlining, unless -ml-advisor-size-increase-threshold
// sets another. LLVM's own is 2, which keeps even the default from inlining as it does elsewhere. It must equal that of
// llvm/advisors.py.
inline constexpr float kMaxGrowth = 5.0f;

class TrackedAdvice;

// Computes the features of each call site and maintains them as calls are inlined. A derived class makes the decisions.
class FeatureAdvisor : public llvm::InlineAdvisor {
public:
  using DefaultAdvice = std::function<std::unique_ptr<llvm::InlineAdvice>(llvm::CallBase &)>;

  FeatureAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM, llvm::FunctionAnalysisManager &FAM,
                 DefaultAdvice Default)
      : InlineAdvisor(M, FAM), PSI(MAM.getResult<llvm::ProfileSummaryAnalysis>(M)), Features(availableFeatures().size()),
        CG(MAM.getResult<llvm::LazyCallGraphAnalysis>(M)), Default(std::move(Default)) {
    for (llvm::Function &F : M)
      if (!F.isDeclaration())
        InitialSize += static_cast<int32_t>(countsOf(F).Counts.Instructions);
    CurrentSize = InitialSize;
    visitHeights(M, [this](llvm::Function &F, unsigned Height) {
      Heights[&CG.get(F)] = Height;
      NumEdges += countsOf(F).Counts.DirectCalls;
    });
    NumNodes = static_cast<int64_t>(Heights.size());
  }

  void onPassEntry(llvm::LazyCallGraph::SCC *SCC) override {
    if (!SCC || ForceStop)
      return;
    CachedCounts.clear();
    // Other passes have changed the functions of the last SCC and may have created functions that these call.
    while (!NodesInLastSCC.empty()) {
      const llvm::LazyCallGraph::Node *Node = NodesInLastSCC.pop_back_val();
      NumEdges += countsOf(Node->getFunction()).Counts.DirectCalls;
      const unsigned Height = Heights.lookup(Node);
      for (const llvm::LazyCallGraph::Edge &Edge : **Node)
        if (Heights.try_emplace(&Edge.getNode(), Height).second) {
          ++NumNodes;
          NodesInLastSCC.insert(&Edge.getNode());
        }
    }
    NumEdges -= NumEdgesInLastSCC;
    NumEdgesInLastSCC = 0;
    // Remember the nodes now: the SCC may be split before the pass ends.
    for (const llvm::LazyCallGraph::Node &Node : *SCC)
      NodesInLastSCC.insert(&Node);
  }

  void onPassExit(llvm::LazyCallGraph::SCC *SCC) override {
    CachedCounts.clear();
    if (!SCC || ForceStop)
      return;
    for (const llvm::LazyCallGraph::Node &Node : *SCC)
      NodesInLastSCC.insert(&Node);
    NumEdgesInLastSCC = 0;
    for (const llvm::LazyCallGraph::Node *Node : NodesInLastSCC)
      NumEdgesInLastSCC += countsOf(Node->getFunction()).Counts.DirectCalls;
  }

protected:
  // Decides on a call that may legally be inlined. `Features` holds its features. Returns a TrackedAdvice.
  virtual std::unique_ptr<llvm::InlineAdvice> decide(llvm::CallBase &CB, llvm::OptimizationRemarkEmitter &ORE) = 0;

  // What LLVM's default heuristic decides about the current call site.
  bool defaultDecision(llvm::CallBase &CB) {
    if (Shown.get())
      return Shown.get()->isInliningRecommended();
    return ShownAdvice(Default(CB)).get()->isInliningRecommended();
  }

  // Of the current call site, whose features are set.
  CallCosts callCosts(llvm::CallBase &CB) {
    const auto Get = [this](llvm::FeatureIndex Index) { return Features[static_cast<size_t>(Index)]; };
    const bool IsLast = Get(llvm::FeatureIndex::last_call_to_static_bonus) != 0;
    const auto &TTI = FAM.getResult<llvm::TargetIRAnalysis>(*CB.getCalledFunction());
    return {Get(llvm::FeatureIndex::cost_estimate) + (IsLast ? lastCallBonus(CB, TTI) : 0),
            Get(llvm::FeatureIndex::callsite_cost), Get(llvm::FeatureIndex::sroa_savings)};
  }

  bool exceedsFrameLimit(llvm::CallBase &CB) { return compiler_opt::exceedsFrameLimit(CG, CB); }

  llvm::ProfileSummaryInfo &PSI;
  // Of the current call site, in the order of `availableFeatures`; this class sets LLVM's.
  std::vector<int64_t> Features;

  // What FunctionPropertiesInfo has for a function.
  struct FunctionCounts {
    BodyCounts Counts;
    int64_t Uses = 0;
  };

  // Cached until the pass ends, even if the function's uses change in the meantime: LLVM's advisor does the same.
  FunctionCounts countsOf(llvm::Function &F) {
    const auto [Position, IsNew] = CachedCounts.try_emplace(&F);
    if (IsNew) {
      FunctionBody &Body = FAM.getResult<FunctionBodyAnalysis>(F);
      if (!Body.Uses)
        Body.Uses = numUses(F);
      Position->second = {Body.Counts, *Body.Uses};
    }
    return Position->second;
  }

private:
  friend class TrackedAdvice;

  enum class SkipPolicy { Never, IfCallerIsNotCold };

  std::unique_ptr<llvm::InlineAdvice> getAdviceImpl(llvm::CallBase &CB) override;
  std::unique_ptr<llvm::InlineAdvice> getMandatoryAdvice(llvm::CallBase &CB, bool Advice) override;

  std::unique_ptr<llvm::InlineAdvice> advise(llvm::CallBase &CB, llvm::OptimizationRemarkEmitter &ORE);

  std::unique_ptr<llvm::InlineAdvice> untracked(llvm::CallBase &CB, bool Recommendation) {
    return std::make_unique<llvm::InlineAdvice>(this, CB, getCallerORE(CB), Recommendation);
  }

  static int64_t numUses(const llvm::Function &F) { return F.getNumUses() + (F.hasLocalLinkage() ? 0 : 1); }

  bool hasRepeatedLoads(llvm::Function &F) {
    FunctionBody &Body = FAM.getResult<FunctionBodyAnalysis>(F);
    if (!Body.HasRepeatedLoads)
      Body.HasRepeatedLoads = compiler_opt::hasRepeatedLoads(F);
    return *Body.HasRepeatedLoads;
  }

  bool isReachable(llvm::CallBase &CB) {
    FunctionBody &Caller = FAM.getResult<FunctionBodyAnalysis>(*CB.getCaller());
    if (!ForceStop && Caller.IsAllReachable)
      return true;
    // After a forced stop the set is not updated, so inlined blocks count as unreachable, as in MLInlineAdvisor.
    if (!Caller.Reachable)
      Caller.Reachable = reachableBlocks(*CB.getCaller());
    return Caller.Reachable->contains(CB.getParent());
  }

  // Sets `Features`, except for a mandatory call; returns whether the call can be inlined.
  bool computeFeatures(llvm::CallBase &CB, bool IsMandatory);

  void onInlined(const TrackedAdvice &Advice, bool IsCalleeDeleted);

  llvm::LazyCallGraph &CG;
  const DefaultAdvice Default;
  ShownAdvice Shown; // for the remarks about the current call site
  llvm::DenseMap<const llvm::Function *, FunctionCounts> CachedCounts;
  llvm::DenseMap<const llvm::LazyCallGraph::Node *, unsigned> Heights;
  // The nodes of the last SCC, in a deterministic order, so that new functions get deterministic heights.
  llvm::SmallSetVector<const llvm::LazyCallGraph::Node *, 4> NodesInLastSCC;
  int64_t NumNodes = 0;
  int64_t NumEdges = 0;
  int64_t NumEdgesInLastSCC = 0; // edges from `NodesInLastSCC`
  int32_t InitialSize = 0, CurrentSize = 0; // of the module, in instructions
  const float MaxGrowth = llvmOption("ml-advisor-size-increase-threshold", kMaxGrowth, /*IfGiven=*/true);
  // SkipPolicy has the values of LLVM's enumeration, which no header declares.
  const SkipPolicy Skip = llvmOption("ml-inliner-skip-policy", SkipPolicy::Never);
  const bool CanSumCosts = hasStandardUnitCosts(M);
  bool ForceStop = false; // the module has grown by more than MaxGrowth
};

// Updates the advisor's counts when its call is inlined.
class TrackedAdvice : public llvm::InlineAdvice {
public:
  TrackedAdvice(FeatureAdvisor *Advisor, llvm::CallBase &CB, llvm::OptimizationRemarkEmitter &ORE, bool Recommendation)
      : InlineAdvice(Advisor, CB, ORE, Recommendation), Shown(std::move(Advisor->Shown)) {
    const BodyCounts CallerCounts = Advisor->countsOf(*Caller).Counts, CalleeCounts = Advisor->countsOf(*Callee).Counts;
    CallerSize = CallerCounts.Instructions;
    CalleeSize = CalleeCounts.Instructions;
    NumEdges = CallerCounts.DirectCalls + CalleeCounts.DirectCalls;
    if (Recommendation)
      Region.emplace(CB, CallerCounts);
  }

protected:
  void recordInliningImpl() override { onInlined(false); }
  void recordInliningWithCalleeDeletedImpl() override { onInlined(true); }
  void recordUnsuccessfulInliningImpl(const llvm::InlineResult &Result) override { Shown.recordUnsuccessful(Result); }
  void recordUnattemptedInliningImpl() override { Shown.recordRefused(ORE, DLoc, Block, *Callee, *Caller); }

private:
  friend class FeatureAdvisor;

  void onInlined(bool IsCalleeDeleted) {
    Shown.recordInlined(ORE, DLoc, Block, *Callee, *Caller, IsCalleeDeleted);
    advisor().onInlined(*this, IsCalleeDeleted);
  }

  FeatureAdvisor &advisor() const { return *static_cast<FeatureAdvisor *>(Advisor); }

  ShownAdvice Shown;
  // Before inlining.
  int64_t CallerSize = 0, CalleeSize = 0; // in instructions
  int64_t NumEdges = 0;                   // from caller and callee
  std::optional<CallSiteRegion> Region;   // only if inlining is recommended
};

inline std::unique_ptr<llvm::InlineAdvice> FeatureAdvisor::getAdviceImpl(llvm::CallBase &CB) {
  llvm::OptimizationRemarkEmitter &ORE = getCallerORE(CB);
  Shown = ORE.enabled() ? ShownAdvice(Default(CB)) : ShownAdvice();
  std::unique_ptr<llvm::InlineAdvice> Advice = advise(CB, ORE);
  Shown = ShownAdvice(); // An advice that is tracked has taken it.
  return Advice;
}

inline std::unique_ptr<llvm::InlineAdvice> FeatureAdvisor::advise(llvm::CallBase &CB,
                                                                  llvm::OptimizationRemarkEmitter &ORE) {
  if (!isReachable(CB))
    return untracked(CB, false);
  llvm::Function &Caller = *CB.getCaller();
  if (Skip == SkipPolicy::IfCallerIsNotCold && !PSI.isFunctionEntryCold(&Caller)) {
    const bool Decision = defaultDecision(CB);
    if (ForceStop)
      return untracked(CB, Decision);
    return std::make_unique<TrackedAdvice>(this, CB, ORE, Decision);
  }
  const MandatoryInliningKind Kind = getMandatoryKind(CB, FAM, ORE);
  if (Kind == MandatoryInliningKind::Never || &Caller == CB.getCalledFunction())
    return untracked(CB, false);
  const bool IsMandatory = Kind == MandatoryInliningKind::Always;
  if (ForceStop)
    return untracked(CB, IsMandatory);
  if (!computeFeatures(CB, IsMandatory))
    return untracked(CB, false);
  return IsMandatory ? getMandatoryAdvice(CB, true) : decide(CB, ORE);
}

inline std::unique_ptr<llvm::InlineAdvice> FeatureAdvisor::getMandatoryAdvice(llvm::CallBase &CB, bool Advice) {
  if (!isReachable(CB))
    return untracked(CB, false);
  if (ForceStop || !Advice)
    return untracked(CB, Advice);
  llvm::OptimizationRemarkEmitter &ORE = getCallerORE(CB);
  if (ORE.enabled() && !Shown.get())
    Shown = ShownAdvice(InlineAdvisor::getMandatoryAdvice(CB, true));
  return std::make_unique<TrackedAdvice>(this, CB, ORE, true);
}

inline bool FeatureAdvisor::computeFeatures(llvm::CallBase &CB, bool IsMandatory) {
  using llvm::FeatureIndex;
  using llvm::InlineCostFeatureIndex;
  llvm::Function &Caller = *CB.getCaller(), &Callee = *CB.getCalledFunction();
  llvm::TargetTransformInfo &TTI = FAM.getResult<llvm::TargetIRAnalysis>(Callee);
  const auto Assumptions = [this](llvm::Function &F) -> llvm::AssumptionCache & {
    return FAM.getResult<llvm::AssumptionAnalysis>(F);
  };
  const std::optional<llvm::InlineCostFeatures> Costs = llvm::getInliningCostFeatures(CB, TTI, Assumptions);
  if (!Costs)
    return false;
  if (IsMandatory)
    return true;
  const bool IsSum = CanSumCosts && isSumOfCosts(CB, *Costs) &&
                     (!costFeature(*Costs, InlineCostFeatureIndex::load_elimination) || !hasRepeatedLoads(Callee));
  const std::optional<int> Cost =
      IsSum ? sumOfCosts(CB, TTI, *Costs) : llvm::getInliningCostEstimate(CB, TTI, Assumptions);
  if (!Cost)
    return false;

  std::copy(Costs->begin(), Costs->end(), Features.begin());
  const auto Set = [this](FeatureIndex Index, int64_t Value) { Features[static_cast<size_t>(Index)] = Value; };
  const auto IsConstant = [](const llvm::Use &Argument) { return llvm::isa<llvm::Constant>(Argument.get()); };
  const FunctionCounts CallerCounts = countsOf(Caller), CalleeCounts = countsOf(Callee);
  Set(FeatureIndex::callee_basic_block_count, CalleeCounts.Counts.Blocks);
  Set(FeatureIndex::callsite_height, Heights.lookup(CG.lookup(Caller)));
  Set(FeatureIndex::node_count, NumNodes);
  Set(FeatureIndex::nr_ctant_params, std::count_if(CB.arg_begin(), CB.arg_end(), IsConstant));
  Set(FeatureIndex::cost_estimate, *Cost);
  Set(FeatureIndex::edge_count, NumEdges);
  Set(FeatureIndex::caller_users, CallerCounts.Uses);
  Set(FeatureIndex::caller_conditionally_executed_blocks, CallerCounts.Counts.ConditionalSuccessors);
  Set(FeatureIndex::caller_basic_block_count, CallerCounts.Counts.Blocks);
  Set(FeatureIndex::callee_conditionally_executed_blocks, CalleeCounts.Counts.ConditionalSuccessors);
  Set(FeatureIndex::callee_users, CalleeCounts.Uses);
  Set(FeatureIndex::is_callee_avail_external, Callee.hasAvailableExternallyLinkage());
  Set(FeatureIndex::is_caller_avail_external, Caller.hasAvailableExternallyLinkage());
  return true;
}

inline void FeatureAdvisor::onInlined(const TrackedAdvice &Advice, bool IsCalleeDeleted) {
  llvm::Function &Caller = *Advice.Caller, &Callee = *Advice.Callee;
  FunctionBody &Body = FAM.getResult<FunctionBodyAnalysis>(Caller);
  if (const std::optional<BodyCounts> Counts = Advice.Region->countAfterInlining()) {
    Body.Counts = *Counts;
  } else {
    const BlockSet Reachable = reachableBlocks(Caller);
    Body.Counts = Advice.Region->countAfterInlining(Reachable);
    Body.NumExcessBlocks = Body.Counts.Blocks - static_cast<int64_t>(Reachable.size());
  }
  Body.onCountsChanged(Caller);
  Body.Uses = numUses(Caller);
  CachedCounts[&Caller] = {Body.Counts, *Body.Uses};

  const BodyCounts CalleeCounts = IsCalleeDeleted ? BodyCounts() : countsOf(Callee).Counts;
  const int64_t CalleeSize = IsCalleeDeleted ? 0 : Advice.CalleeSize;
  CurrentSize += static_cast<int32_t>(Body.Counts.Instructions + CalleeSize - Advice.CallerSize - Advice.CalleeSize);
  ForceStop = static_cast<float>(CurrentSize) > MaxGrowth * static_cast<float>(InitialSize);
  NumEdges += Body.Counts.DirectCalls + CalleeCounts.DirectCalls - Advice.NumEdges;
  if (IsCalleeDeleted) {
    --NumNodes;
    NodesInLastSCC.remove(CG.lookup(Callee));
  }
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_
