// An inline advisor with the features of LLVM's own MLInlineAdvisor, at a fraction of the cost.
//
// LLVM's maintains all of FunctionPropertiesInfo, and for that updates dominators and loops after each inlining. The
// features only need four counts of a function's body, and which of its blocks are reachable. These are kept here, counted
// at the same moments and with the same omissions, so that every feature has the same value as LLVM's, with one known
// exception. `benchmarks/feature_values.py` compares the two over a corpus.
//
// The exception, in LLVM 22 but not in 19: in code with many exceptions and calls that never return, LLVM may consider
// reachable blocks unreachable, and count one or two less. The cause seems to be its dominator tree, which is updated after
// each inlining, except for landing pads that inlining has split; imitating this would require maintaining that tree.

#ifndef COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_
#define COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_

#include "llvm/Config/llvm-config.h"

// Older versions have two features less, and other classes; `llvm/inliner_plugin.py` reports that before it compiles.
#if LLVM_VERSION_MAJOR < 19
#error "the inliner plugin needs LLVM 19"
#endif

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/AbstractCallSite.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace compiler_opt {

// Of the features, one word each: what the cost analysis found, and then what is counted here.
inline const std::vector<llvm::TensorSpec> &offeredFeatures() {
#if LLVM_VERSION_MAJOR >= 21
  return llvm::MLInlineAdvisor::getInitialFeatureMap();
#else
  return llvm::FeatureMap;
#endif
}

// --- Bodies of functions ---------------------------------------------------------------------------------------------

// Of some blocks.
struct BodyCounts {
  int64_t Blocks = 0;
  int64_t ConditionalSuccessors = 0; // of branches and switches
  int64_t Instructions = 0;          // debug information apart
  int64_t DirectCalls = 0;           // of functions that are defined in the module

  BodyCounts &operator+=(const BodyCounts &Other) { return add(Other, 1); }
  BodyCounts &operator-=(const BodyCounts &Other) { return add(Other, -1); }

private:
  BodyCounts &add(const BodyCounts &Other, int64_t Sign) {
    Blocks += Sign * Other.Blocks;
    ConditionalSuccessors += Sign * Other.ConditionalSuccessors;
    Instructions += Sign * Other.Instructions;
    DirectCalls += Sign * Other.DirectCalls;
    return *this;
  }
};

inline bool isConditionalBranch(const llvm::Instruction &I) {
#if LLVM_VERSION_MAJOR >= 23 // which has a class for each kind of branch; the common one is gone in 24
  return llvm::isa<llvm::CondBrInst>(I);
#else
  return llvm::isa<llvm::BranchInst>(I) && I.getNumSuccessors() == 2;
#endif
}

inline BodyCounts countsOf(const llvm::BasicBlock &BB) {
  BodyCounts Result;
  Result.Blocks = 1;
  for (const llvm::Instruction &I : BB) {
    if (const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I)) {
      if (const llvm::Function *Callee = Call->getCalledFunction()) {
        if (Callee->isIntrinsic()) {
          if (llvm::isa<llvm::DbgInfoIntrinsic, llvm::PseudoProbeInst>(I))
            continue;
        } else if (!Callee->isDeclaration()) {
          ++Result.DirectCalls;
        }
      }
    }
    ++Result.Instructions;
  }
  const llvm::Instruction *End = BB.getTerminator();
  if (isConditionalBranch(*End) || llvm::isa<llvm::SwitchInst>(End))
    Result.ConditionalSuccessors = End->getNumSuccessors();
  return Result;
}

using BlockSet = llvm::SmallPtrSet<const llvm::BasicBlock *, 32>;

inline BlockSet reachableBlocks(const llvm::Function &F) {
  BlockSet Reached;
  llvm::SmallVector<const llvm::BasicBlock *, 32> Pending;
  Pending.push_back(&F.getEntryBlock());
  Reached.insert(&F.getEntryBlock());
  while (!Pending.empty())
    for (const llvm::BasicBlock *Next : successors(Pending.pop_back_val()))
      if (Reached.insert(Next).second)
        Pending.push_back(Next);
  return Reached;
}

// What is known of a function, until a pass changes it.
struct Body {
  BodyCounts Counts;                 // of the blocks that can be reached, or what LLVM takes for that
  int64_t NumMiscounted = 0;         // so many more blocks than can be reached
  bool IsAllReachable = true;
  std::optional<BlockSet> Reachable; // made when it is needed
  std::optional<bool> RepeatsLoads;  // reads two times by the same pointer; found out when it is needed
  std::optional<int64_t> Uses;       // of the function when that was first asked for

  void count(const llvm::Function &F) {
    for (const llvm::BasicBlock *BB : reachableBlocks(F))
      Counts += countsOf(*BB);
    finish(F);
  }

  // The counts are new.
  void finish(const llvm::Function &F) {
    IsAllReachable = Counts.Blocks - NumMiscounted == static_cast<int64_t>(F.size());
    Reachable.reset();
    RepeatsLoads.reset();
  }
};

inline bool repeatsLoads(const llvm::Function &F) {
  llvm::SmallPtrSet<const llvm::Value *, 32> Pointers;
  for (const llvm::BasicBlock &BB : F)
    for (const llvm::Instruction &I : BB)
      if (const auto *Load = llvm::dyn_cast<llvm::LoadInst>(&I))
        if (!Pointers.insert(Load->getPointerOperand()).second)
          return true;
  return false;
}

class BodyAnalysis : public llvm::AnalysisInfoMixin<BodyAnalysis> {
public:
  using Result = Body;

  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) {
    Body Counted;
    Counted.count(F);
    return Counted;
  }

private:
  friend llvm::AnalysisInfoMixin<BodyAnalysis>;
  static inline llvm::AnalysisKey Key;
};

// The part of a caller's body that inlining a call may change, and how many there are of everything in the rest.
class CallSiteRegion {
public:
  CallSiteRegion(const llvm::CallBase &CB, const BodyCounts &Caller) : Rest(Caller), CallBlock(CB.getParent()) {
    Boundary.insert(succ_begin(CallBlock), succ_end(CallBlock));
    // The landing pad may be split, and its code shared with the callee's calls that may throw.
    if (const auto *Invoke = llvm::dyn_cast<llvm::InvokeInst>(&CB))
      Boundary.insert(succ_begin(Invoke->getUnwindDest()), succ_end(Invoke->getUnwindDest()));
    Boundary.remove(CallBlock);
#if LLVM_VERSION_MAJOR >= 21
    // The result, once known, may make an indirect call a direct one.
    for (const llvm::User *User : CB.users())
      Users.insert(llvm::cast<llvm::Instruction>(User)->getParent());
#endif
    BlockSet Changing(Boundary.begin(), Boundary.end());
    Changing.insert(Users.begin(), Users.end());
    Changing.insert(CallBlock);
    Changing.insert(&CallBlock->getParent()->getEntryBlock()); // receives allocas
    for (const llvm::BasicBlock *BB : Changing)
      Rest -= countsOf(*BB);
  }

  // The caller's counts after inlining; nothing when blocks outside may have become unreachable.
  std::optional<BodyCounts> countAfterwards() const {
    BodyCounts Counts = Rest;
    BlockSet Seen;
    llvm::SmallVector<const llvm::BasicBlock *, 16> Pending;
    const auto Take = [&](const llvm::BasicBlock *BB) {
      if (!Seen.insert(BB).second)
        return;
      Counts += countsOf(*BB);
      Pending.push_back(BB);
    };
    Take(CallBlock);
    size_t NumBoundaryReached = 0;
    while (!Pending.empty()) {
      const llvm::BasicBlock *BB = Pending.pop_back_val();
      const bool IsBoundary = Boundary.contains(BB);
      NumBoundaryReached += IsBoundary;
      for (const llvm::BasicBlock *Next : successors(BB))
        if (!IsBoundary || Boundary.contains(Next))
          Take(Next);
    }
    if (NumBoundaryReached != Boundary.size())
      return std::nullopt;
    Take(&CallBlock->getParent()->getEntryBlock());
    for (const llvm::BasicBlock *BB : Users)
      Take(BB);
    return Counts;
  }

  // The same whatever has become unreachable, as FunctionPropertiesUpdater counts it: users of the result are counted
  // even if they cannot be reached any more, and what is behind unreachable blocks is taken away although they may be new.
  BodyCounts countAfterwards(const BlockSet &Reachable) const {
    using Blocks = llvm::SmallSetVector<const llvm::BasicBlock *, 16>;
    BodyCounts Counts = Rest;
    Blocks Included, Excluded;
    Included.insert(&CallBlock->getParent()->getEntryBlock());
    Included.insert(Users.begin(), Users.end());
    Included.remove(CallBlock);
    for (const llvm::BasicBlock *BB : Boundary)
      (Reachable.contains(BB) ? Included : Excluded).insert(BB);
    const size_t NumOutside = Included.size(), NumLeftOut = Excluded.size(); // `Rest` is without them
    Included.insert(CallBlock);
    for (size_t Index = 0; Index < Included.size(); ++Index) {
      const llvm::BasicBlock *BB = Included[Index];
      Counts += countsOf(*BB);
      if (Index >= NumOutside)
        Included.insert(succ_begin(BB), succ_end(BB));
    }
    for (size_t Index = 0; Index < Excluded.size(); ++Index) {
      const llvm::BasicBlock *BB = Excluded[Index];
      if (Index >= NumLeftOut)
        Counts -= countsOf(*BB);
      for (const llvm::BasicBlock *Next : successors(BB))
        if (!Reachable.contains(Next))
          Excluded.insert(Next);
    }
    return Counts;
  }

private:
  BodyCounts Rest;
  const llvm::BasicBlock *CallBlock;
  llvm::SmallSetVector<const llvm::BasicBlock *, 4> Boundary; // where what is behind it begins
  llvm::SmallSetVector<const llvm::BasicBlock *, 4> Users;    // blocks that use the call's result
};

// --- The call graph as it was at first -------------------------------------------------------------------------------

struct CallGraphFunction {
  static constexpr int64_t kUnknown = -1;

  llvm::Function *F = nullptr;
  llvm::SmallVector<CallGraphFunction *, 4> Callees; // those that are called directly come first
  size_t NumCalls = 0;
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

// Calls `Visit` with each function that may be called, and its height above those that it calls, recursion apart.
template <typename Visitor> void visitHeights(llvm::Module &M, Visitor Visit) {
  std::vector<CallGraphFunction> Functions(M.size() + 1);
  llvm::DenseMap<const llvm::Function *, CallGraphFunction *> ByFunction;
  ByFunction.reserve(static_cast<unsigned>(M.size()));
  CallGraphFunction &Outside = Functions.front();
  size_t Next = 1;
  for (llvm::Function &F : M) {
    if (F.isDeclaration())
      continue;
    CallGraphFunction &Node = Functions[Next++];
    Node.F = &F;
    ByFunction[&F] = &Node;
    if (!F.hasLocalLinkage() || F.hasAddressTaken(nullptr, /*IgnoreCallbackUses=*/true))
      Outside.Callees.push_back(&Node);
  }
  llvm::SmallVector<CallGraphFunction *, 4> Callbacks;
  for (size_t Index = 1; Index < Next; ++Index) {
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
        // Few have any, and then as metadata.
        if (Callee->hasMetadata())
          forEachCallbackFunction(*Call, [&](llvm::Function *Callback) {
            if (!Callback->isDeclaration())
              Callbacks.push_back(ByFunction.lookup(Callback));
          });
      }
    Node.NumCalls = Node.Callees.size();
    Node.Callees.append(Callbacks.begin(), Callbacks.end());
    Callbacks.clear();
  }
  for (auto SCC = llvm::scc_begin(&Outside); !SCC.isAtEnd(); ++SCC) {
    int64_t Height = 0;
    for (const CallGraphFunction *Node : *SCC)
      for (size_t Call = 0; Call < Node->NumCalls; ++Call)
        Height = std::max(Height, Node->Callees[Call]->Height + 1);
    for (CallGraphFunction *Node : *SCC) {
      Node->Height = Height;
      if (Node->F)
        Visit(*Node->F, static_cast<unsigned>(Height));
    }
  }
}

// --- What inlining is estimated to cost ------------------------------------------------------------------------------

// LLVM analyses a call twice: for the estimate, and for what the estimate consists of. Where the second leaves nothing
// open, it tells the first. The tests compare it with LLVM's own.
inline int64_t costOf(const llvm::InlineCostFeatures &Costs, llvm::InlineCostFeatureIndex Index) {
  return Costs[static_cast<size_t>(Index)];
}

// For most calls it does. These are told as they are counted, not as they are charged.
inline bool isSumOfCosts(const llvm::CallBase &CB, const llvm::InlineCostFeatures &Costs) {
  using Index = llvm::InlineCostFeatureIndex;
  return !costOf(Costs, Index::nested_inlines) && !costOf(Costs, Index::last_call_to_static_bonus) &&
         // What inlining within a recursion has left behind is dear, so that it ends.
         !CB.hasFnAttr(llvm::InlineConstants::FunctionInlineCostMultiplierAttributeName) &&
         !CB.hasFnAttr("function-inline-cost");
}

inline int sumOfCosts(const llvm::InlineCostFeatures &Costs) {
  int64_t Sum = 0;
  for (size_t Position = 0; Position < Costs.size(); ++Position) {
    const auto Index = static_cast<llvm::InlineCostFeatureIndex>(Position);
    // That loads cannot be left out is told, and only costs something where there are such loads.
    if (llvm::isHeuristicInlineCostFeature(Index) && Index != llvm::InlineCostFeatureIndex::load_elimination)
      Sum += Costs[Position];
  }
  return static_cast<int>(Sum);
}

// Other targets, and users, may charge other prices in the estimate.
inline bool mayCostsBeSummed(const llvm::Module &M) {
  const auto &Options = llvm::cl::getRegisteredOptions();
  for (const char *Name : {"inline-instr-cost", "inline-asm-instr-cost", "inline-memaccess-cost", "inline-call-penalty"}) {
    const auto Position = Options.find(Name);
    if (Position != Options.end() && Position->second->getNumOccurrences())
      return false;
  }
  return llvm::Triple(M.getTargetTriple()).isX86();
}

// --- The advisor -----------------------------------------------------------------------------------------------------

// The value of one of LLVM's own options.
template <typename T> T llvmOption(llvm::StringRef Name, T Otherwise) {
  const auto &Options = llvm::cl::getRegisteredOptions();
  const auto Position = Options.find(Name);
  return Position == Options.end() ? Otherwise : static_cast<llvm::cl::opt<T> *>(Position->second)->getValue();
}

class TrackedAdvice;

// Whoever derives from it decides, by the features or otherwise.
class FeatureAdvisor : public llvm::InlineAdvisor {
public:
  using DefaultDecision = std::function<bool(llvm::CallBase &)>;

  FeatureAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM, llvm::FunctionAnalysisManager &FAM,
                 DefaultDecision Default)
      : InlineAdvisor(M, FAM), Default(std::move(Default)), Features(offeredFeatures().size()),
        CG(MAM.getResult<llvm::LazyCallGraphAnalysis>(M)), PSI(MAM.getResult<llvm::ProfileSummaryAnalysis>(M)) {
    for (llvm::Function &F : M)
      if (!F.isDeclaration())
        InitialSize += static_cast<int32_t>(knownOf(F).Counts.Instructions);
    CurrentSize = InitialSize;
    visitHeights(M, [this](llvm::Function &F, unsigned Height) {
      Heights[&CG.get(F)] = Height;
      NumEdges += knownOf(F).Counts.DirectCalls;
    });
    NumNodes = static_cast<int64_t>(Heights.size());
  }

  void onPassEntry(llvm::LazyCallGraph::SCC *SCC) override {
    if (!SCC || HasStopped)
      return;
    Known.clear();
    // Passes have changed the functions that were last seen here; new ones may hang on them.
    while (!LastNodes.empty()) {
      const llvm::LazyCallGraph::Node *Node = LastNodes.pop_back_val();
      NumEdges += knownOf(Node->getFunction()).Counts.DirectCalls;
      const unsigned Height = Heights.lookup(Node);
      for (const llvm::LazyCallGraph::Edge &Edge : **Node)
        if (Heights.try_emplace(&Edge.getNode(), Height).second) {
          ++NumNodes;
          LastNodes.insert(&Edge.getNode());
        }
    }
    NumEdges -= NumLastEdges;
    NumLastEdges = 0;
    // The SCC may be split before the pass ends.
    for (const llvm::LazyCallGraph::Node &Node : *SCC)
      LastNodes.insert(&Node);
  }

  void onPassExit(llvm::LazyCallGraph::SCC *SCC) override {
    Known.clear();
    if (!SCC || HasStopped)
      return;
    for (const llvm::LazyCallGraph::Node &Node : *SCC)
      LastNodes.insert(&Node);
    NumLastEdges = 0;
    for (const llvm::LazyCallGraph::Node *Node : LastNodes)
      NumLastEdges += knownOf(Node->getFunction()).Counts.DirectCalls;
  }

protected:
  // About a call that may be inlined or not, as its `Features` say. It tells by trackedAdvice().
  virtual std::unique_ptr<llvm::InlineAdvice> decide(llvm::CallBase &CB, llvm::OptimizationRemarkEmitter &ORE) = 0;

  const DefaultDecision Default;
  std::vector<int64_t> Features; // those of `offeredFeatures`

private:
  friend class TrackedAdvice;

  // What FunctionPropertiesInfo knew of a function at the same time.
  struct FunctionCounts {
    BodyCounts Counts;
    int64_t Uses = 0;
  };

  enum class SkipPolicy { Never, IfCallerIsNotCold };

  std::unique_ptr<llvm::InlineAdvice> getAdviceImpl(llvm::CallBase &CB) override;
  std::unique_ptr<llvm::InlineAdvice> getMandatoryAdvice(llvm::CallBase &CB, bool Advice) override;

  std::unique_ptr<llvm::InlineAdvice> untracked(llvm::CallBase &CB, bool Recommendation) {
    return std::make_unique<llvm::InlineAdvice>(this, CB, getCallerORE(CB), Recommendation);
  }

  static int64_t usesOf(const llvm::Function &F) { return F.getNumUses() + (F.hasLocalLinkage() ? 0 : 1); }

  // Kept for as long as the pass runs, whatever becomes of its uses meanwhile.
  FunctionCounts knownOf(llvm::Function &F) {
    const auto [Position, IsNew] = Known.try_emplace(&F);
    if (IsNew) {
      Body &Counted = FAM.getResult<BodyAnalysis>(F);
      if (!Counted.Uses)
        Counted.Uses = usesOf(F);
      Position->second = {Counted.Counts, *Counted.Uses};
    }
    return Position->second;
  }

  bool repeatsLoadsOf(llvm::Function &F) {
    Body &Counted = FAM.getResult<BodyAnalysis>(F);
    if (!Counted.RepeatsLoads)
      Counted.RepeatsLoads = repeatsLoads(F);
    return *Counted.RepeatsLoads;
  }

  bool isReachable(llvm::CallBase &CB) {
    Body &Caller = FAM.getResult<BodyAnalysis>(*CB.getCaller());
    if (!HasStopped && Caller.IsAllReachable)
      return true;
    // After the stop nobody keeps it up to date: what is inlined then is not reachable, as in MLInlineAdvisor.
    if (!Caller.Reachable)
      Caller.Reachable = reachableBlocks(*CB.getCaller());
    return Caller.Reachable->contains(CB.getParent());
  }

  // Sets the features; false when the call cannot be inlined. A mandatory call gets none.
  bool describe(llvm::CallBase &CB, bool IsMandatory);

  void onInlined(const TrackedAdvice &Advice, bool IsCalleeDeleted);

  llvm::LazyCallGraph &CG;
  llvm::ProfileSummaryInfo &PSI;
  llvm::DenseMap<const llvm::Function *, FunctionCounts> Known;
  llvm::DenseMap<const llvm::LazyCallGraph::Node *, unsigned> Heights;
  // Of the SCC that was last seen; in order, so that the same module always gets the same heights.
  llvm::SmallSetVector<const llvm::LazyCallGraph::Node *, 4> LastNodes;
  int64_t NumNodes = 0;
  int64_t NumEdges = 0;
  int64_t NumLastEdges = 0; // of `LastNodes`
  int32_t InitialSize = 0, CurrentSize = 0; // instructions
  const float MaxGrowth = llvmOption("ml-advisor-size-increase-threshold", 2.0f);
  // An enumeration of the same values, which is not declared in any header.
  const SkipPolicy Skip = llvmOption("ml-inliner-skip-policy", SkipPolicy::Never);
  const bool MaySumCosts = mayCostsBeSummed(M);
  bool HasStopped = false; // the module has grown too much
};

// Tells the advisor when its call was inlined.
class TrackedAdvice : public llvm::InlineAdvice {
public:
  TrackedAdvice(FeatureAdvisor *Advisor, llvm::CallBase &CB, llvm::OptimizationRemarkEmitter &ORE, bool Recommendation)
      : InlineAdvice(Advisor, CB, ORE, Recommendation) {
    const BodyCounts CallerCounts = Advisor->knownOf(*Caller).Counts, CalleeCounts = Advisor->knownOf(*Callee).Counts;
    CallerSize = CallerCounts.Instructions;
    CalleeSize = CalleeCounts.Instructions;
    NumEdges = CallerCounts.DirectCalls + CalleeCounts.DirectCalls;
    if (Recommendation)
      Region.emplace(CB, CallerCounts);
  }

protected:
  void recordInliningImpl() override { onInlined("InliningSuccess", false); }
  void recordInliningWithCalleeDeletedImpl() override { onInlined("InliningSuccessWithCalleeDeleted", true); }
  void recordUnsuccessfulInliningImpl(const llvm::InlineResult &) override {
    remark<llvm::OptimizationRemarkMissed>("InliningAttemptedAndUnsuccessful");
  }
  void recordUnattemptedInliningImpl() override {
    remark<llvm::OptimizationRemarkMissed>("IniningNotAttempted"); // so spelled in LLVM
  }

private:
  friend class FeatureAdvisor;

  void onInlined(const char *Name, bool IsCalleeDeleted) {
    remark<llvm::OptimizationRemark>(Name);
    advisor().onInlined(*this, IsCalleeDeleted);
  }

  template <typename Remark> void remark(const char *Name) {
    ORE.emit([&] {
      using llvm::ore::NV;
      Remark Result("inline-ml", Name, DLoc, Block);
      Result << NV("Callee", Callee->getName());
      const std::vector<int64_t> &Features = advisor().Features;
      for (size_t Index = 0; Index < Features.size(); ++Index)
        Result << NV(offeredFeatures()[Index].name(), Features[Index]);
      Result << NV("ShouldInline", isInliningRecommended());
      return Result;
    });
  }

  FeatureAdvisor &advisor() const { return *static_cast<FeatureAdvisor *>(Advisor); }

  int64_t CallerSize = 0, CalleeSize = 0; // before
  int64_t NumEdges = 0;                   // from caller and callee, before
  std::optional<CallSiteRegion> Region;   // if inlining is recommended
};

inline std::unique_ptr<llvm::InlineAdvice> FeatureAdvisor::getAdviceImpl(llvm::CallBase &CB) {
  if (!isReachable(CB))
    return untracked(CB, false);
  llvm::Function &Caller = *CB.getCaller();
  llvm::OptimizationRemarkEmitter &ORE = getCallerORE(CB);
  if (Skip == SkipPolicy::IfCallerIsNotCold && !PSI.isFunctionEntryCold(&Caller)) {
    if (HasStopped)
      return untracked(CB, Default(CB));
    return std::make_unique<TrackedAdvice>(this, CB, ORE, Default(CB));
  }
  const MandatoryInliningKind Kind = getMandatoryKind(CB, FAM, ORE);
  if (Kind == MandatoryInliningKind::Never || &Caller == CB.getCalledFunction())
    return untracked(CB, false);
  const bool IsMandatory = Kind == MandatoryInliningKind::Always;
  if (HasStopped) {
    ORE.emit([&] {
      return llvm::OptimizationRemarkMissed("inline-ml", "ForceStop", &CB)
             << "Won't attempt inlining because module size grew too much.";
    });
    return untracked(CB, IsMandatory);
  }
  if (!describe(CB, IsMandatory))
    return untracked(CB, false);
  return IsMandatory ? getMandatoryAdvice(CB, true) : decide(CB, ORE);
}

inline std::unique_ptr<llvm::InlineAdvice> FeatureAdvisor::getMandatoryAdvice(llvm::CallBase &CB, bool Advice) {
  if (!isReachable(CB))
    return untracked(CB, false);
  if (HasStopped || !Advice)
    return untracked(CB, Advice);
  return std::make_unique<TrackedAdvice>(this, CB, getCallerORE(CB), true);
}

inline bool FeatureAdvisor::describe(llvm::CallBase &CB, bool IsMandatory) {
  using llvm::FeatureIndex;
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
  const bool IsSum = MaySumCosts && isSumOfCosts(CB, *Costs) &&
                     (!costOf(*Costs, llvm::InlineCostFeatureIndex::load_elimination) || !repeatsLoadsOf(Callee));
  const std::optional<int> Cost =
      IsSum ? sumOfCosts(*Costs) : llvm::getInliningCostEstimate(CB, TTI, Assumptions);
  if (!Cost)
    return false;

  std::copy(Costs->begin(), Costs->end(), Features.begin());
  const auto Set = [this](FeatureIndex Index, int64_t Value) { Features[static_cast<size_t>(Index)] = Value; };
  const auto IsConstant = [](const llvm::Use &Argument) { return llvm::isa<llvm::Constant>(Argument.get()); };
  const FunctionCounts OfCaller = knownOf(Caller), OfCallee = knownOf(Callee);
  Set(FeatureIndex::callee_basic_block_count, OfCallee.Counts.Blocks);
  Set(FeatureIndex::callsite_height, Heights.lookup(CG.lookup(Caller)));
  Set(FeatureIndex::node_count, NumNodes);
  Set(FeatureIndex::nr_ctant_params, std::count_if(CB.arg_begin(), CB.arg_end(), IsConstant));
  Set(FeatureIndex::cost_estimate, *Cost);
  Set(FeatureIndex::edge_count, NumEdges);
  Set(FeatureIndex::caller_users, OfCaller.Uses);
  Set(FeatureIndex::caller_conditionally_executed_blocks, OfCaller.Counts.ConditionalSuccessors);
  Set(FeatureIndex::caller_basic_block_count, OfCaller.Counts.Blocks);
  Set(FeatureIndex::callee_conditionally_executed_blocks, OfCallee.Counts.ConditionalSuccessors);
  Set(FeatureIndex::callee_users, OfCallee.Uses);
  Set(FeatureIndex::is_callee_avail_external, Callee.hasAvailableExternallyLinkage());
  Set(FeatureIndex::is_caller_avail_external, Caller.hasAvailableExternallyLinkage());
  return true;
}

inline void FeatureAdvisor::onInlined(const TrackedAdvice &Advice, bool IsCalleeDeleted) {
  llvm::Function &Caller = *Advice.Caller, &Callee = *Advice.Callee;
  Body &Counted = FAM.getResult<BodyAnalysis>(Caller);
  if (const std::optional<BodyCounts> Counts = Advice.Region->countAfterwards()) {
    Counted.Counts = *Counts;
  } else {
    const BlockSet Reachable = reachableBlocks(Caller);
    Counted.Counts = Advice.Region->countAfterwards(Reachable);
    Counted.NumMiscounted = Counted.Counts.Blocks - static_cast<int64_t>(Reachable.size());
  }
  Counted.finish(Caller);
  Counted.Uses = usesOf(Caller);
  Known[&Caller] = {Counted.Counts, *Counted.Uses};

  const BodyCounts CalleeCounts = IsCalleeDeleted ? BodyCounts() : knownOf(Callee).Counts;
  const int64_t CalleeSize = IsCalleeDeleted ? 0 : Advice.CalleeSize;
  CurrentSize += static_cast<int32_t>(Counted.Counts.Instructions + CalleeSize - Advice.CallerSize - Advice.CalleeSize);
  HasStopped = static_cast<float>(CurrentSize) > MaxGrowth * static_cast<float>(InitialSize);
  NumEdges += Counted.Counts.DirectCalls + CalleeCounts.DirectCalls - Advice.NumEdges;
  if (IsCalleeDeleted) {
    --NumNodes;
    LastNodes.remove(CG.lookup(Callee));
  }
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_INLINE_ADVISOR_H_
