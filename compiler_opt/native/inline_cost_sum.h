// The inline cost estimate, computed from the inline cost features where these determine it.
//
// LLVM's advisor analyses a callee twice for each call: once for the cost estimate and once for the features, which are
// the parts of this estimate. Where the estimate is the sum of its parts, the first analysis is unnecessary. Tests
// compare the estimates with LLVM's.

#ifndef COMPILER_OPT_NATIVE_INLINE_COST_SUM_H_
#define COMPILER_OPT_NATIVE_INLINE_COST_SUM_H_

#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/TargetParser/Triple.h"

#include <cstddef>
#include <cstdint>

namespace compiler_opt {

inline int64_t costFeature(const llvm::InlineCostFeatures &Costs, llvm::InlineCostFeatureIndex Index) {
  return Costs[static_cast<size_t>(Index)];
}

// Whether the features of this call add up to its estimate, as for most calls. The exceptions: nested inlines, whose
// feature is another estimate, and attributes that change the estimate.
inline bool isSumOfCosts(const llvm::CallBase &CB, const llvm::InlineCostFeatures &Costs) {
  using Index = llvm::InlineCostFeatureIndex;
  return !costFeature(Costs, Index::nested_inlines) &&
         // The inliner multiplies the cost of calls that come from inlining within an SCC, so that it terminates.
         !CB.hasFnAttr(llvm::InlineConstants::FunctionInlineCostMultiplierAttributeName) &&
         !CB.hasFnAttr("function-inline-cost");
}

// What the estimate falls by when the only call of a local function is inlined.
inline int64_t lastCallBonus(const llvm::CallBase &CB, const llvm::TargetTransformInfo &TTI) {
  const auto *Invoke = llvm::dyn_cast<llvm::InvokeInst>(&CB);
  const llvm::BasicBlock *After = Invoke ? Invoke->getNormalDest() : CB.getParent();
  if (llvm::isa<llvm::UnreachableInst>(After->getTerminator()))
    return 0; // LLVM does not let the program grow there.
#if LLVM_VERSION_MAJOR >= 20
  return TTI.getInliningLastCallToStaticBonus();
#else
  (void)TTI;
  return llvm::InlineConstants::LastCallToStaticBonus;
#endif
}

inline int sumOfCosts(const llvm::CallBase &CB, const llvm::TargetTransformInfo &TTI,
                      const llvm::InlineCostFeatures &Costs) {
  using Index = llvm::InlineCostFeatureIndex;
  // These two features are 0 or 1.
  int64_t Sum = costFeature(Costs, Index::cold_cc_penalty) * llvm::InlineConstants::ColdccPenalty;
  if (costFeature(Costs, Index::last_call_to_static_bonus))
    Sum -= lastCallBonus(CB, TTI);
  for (size_t Position = 0; Position < Costs.size(); ++Position) {
    const auto Feature = static_cast<Index>(Position);
    // The load_elimination feature is set whenever loads cannot be eliminated. The estimate only includes a cost for
    // that if the callee has repeated loads, and then FeatureAdvisor does not use this sum.
    if (llvm::isHeuristicInlineCostFeature(Feature) && Feature != Index::load_elimination &&
        Feature != Index::cold_cc_penalty && Feature != Index::last_call_to_static_bonus)
      Sum += Costs[Position];
  }
  return static_cast<int>(Sum);
}

// Whether the estimate and the features use the same unit costs in this module. Other targets and command-line options
// may change those of the estimate alone.
inline bool hasStandardUnitCosts(const llvm::Module &M) {
  const auto &Options = llvm::cl::getRegisteredOptions();
  for (const char *Name : {"inline-instr-cost", "inline-asm-instr-cost", "inline-memaccess-cost", "inline-call-penalty"}) {
    const auto Position = Options.find(Name);
    if (Position != Options.end() && Position->second->getNumOccurrences())
      return false;
  }
  return llvm::Triple(M.getTargetTriple()).isX86();
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_INLINE_COST_SUM_H_
