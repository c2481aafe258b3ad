// The inline cost estimate, computed from the inline cost features where these determine it.
//
// LLVM's advisor analyses a callee twice for each call: once for the cost estimate and once for the features, which are
// the parts of this estimate. Where the estimate is the sum of its parts, the first analysis is unnecessary. Tests
// compare the estimates with LLVM's.

#ifndef COMPILER_OPT_NATIVE_INLINE_COST_SUM_H_
#define COMPILER_OPT_NATIVE_INLINE_COST_SUM_H_

#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/TargetParser/Triple.h"

#include <cstddef>
#include <cstdint>

namespace compiler_opt {

inline int64_t costFeature(const llvm::InlineCostFeatures &Costs, llvm::InlineCostFeatureIndex Index) {
  return Costs[static_cast<size_t>(Index)];
}

// Whether the features of this call add up to its estimate, as for most calls. The exceptions: nested inlines and the
// last-call bonus, whose features are counts rather than costs, and attributes that change the estimate.
inline bool isSumOfCosts(const llvm::CallBase &CB, const llvm::InlineCostFeatures &Costs) {
  using Index = llvm::InlineCostFeatureIndex;
  return !costFeature(Costs, Index::nested_inlines) && !costFeature(Costs, Index::last_call_to_static_bonus) &&
         // The inliner multiplies the cost of calls that come from inlining within an SCC, so that it terminates.
         !CB.hasFnAttr(llvm::InlineConstants::FunctionInlineCostMultiplierAttributeName) &&
         !CB.hasFnAttr("function-inline-cost");
}

inline int sumOfCosts(const llvm::InlineCostFeatures &Costs) {
  int64_t Sum = 0;
  for (size_t Position = 0; Position < Costs.size(); ++Position) {
    const auto Index = static_cast<llvm::InlineCostFeatureIndex>(Position);
    // The load_elimination feature is set whenever loads cannot be eliminated. The estimate only includes a cost for
    // that if the callee has repeated loads, and then FeatureAdvisor does not use this sum.
    if (llvm::isHeuristicInlineCostFeature(Index) && Index != llvm::InlineCostFeatureIndex::load_elimination)
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
