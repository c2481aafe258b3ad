// What optimisation remarks (-Rpass=inline, -fsave-optimization-record) say of a decision: the same as without a policy,
// costs included, where the decision is the default's, and otherwise that the policy made it.

#ifndef COMPILER_OPT_NATIVE_SHOWN_ADVICE_H_
#define COMPILER_OPT_NATIVE_SHOWN_ADVICE_H_

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/DebugLoc.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"

#include <memory>
#include <utility>

namespace compiler_opt {

// LLVM's default advice on a call, if remarks are wanted. LLVM emits its remarks about calls that are not inlined when
// it gives the advice, and the others when the advice is recorded.
class ShownAdvice {
public:
  ShownAdvice() = default;
  explicit ShownAdvice(std::unique_ptr<llvm::InlineAdvice> Default) : Default(std::move(Default)) {}
  ShownAdvice(ShownAdvice &&) = default;
  ShownAdvice &operator=(ShownAdvice &&) = default;
  // Every advice must be recorded.
  ~ShownAdvice() { recordUnattempted(); }

  const llvm::InlineAdvice *get() const { return Default.get(); }

  void recordInlined(llvm::OptimizationRemarkEmitter &ORE, const llvm::DebugLoc &Location, const llvm::BasicBlock *Block,
                     const llvm::Function &Callee, const llvm::Function &Caller, bool IsCalleeDeleted) {
    if (!Default)
      return;
    if (!Default->isInliningRecommended()) {
      llvm::emitInlinedInto(ORE, Location, Block, Callee, Caller, /*IsMandatory=*/false,
                            [](llvm::OptimizationRemark &Remark) { Remark << " by the policy"; });
      return recordUnattempted();
    }
    if (IsCalleeDeleted)
      Default->recordInliningWithCalleeDeleted();
    else
      Default->recordInlining();
    Default.reset();
  }

  void recordUnsuccessful(const llvm::InlineResult &Result) {
    if (!Default || !Default->isInliningRecommended())
      return recordUnattempted();
    Default->recordUnsuccessfulInlining(Result);
    Default.reset();
  }

  // The policy does not inline the call.
  void recordRefused(llvm::OptimizationRemarkEmitter &ORE, const llvm::DebugLoc &Location,
                     const llvm::BasicBlock *Block, const llvm::Function &Callee, const llvm::Function &Caller) {
    if (Default && Default->isInliningRecommended())
      ORE.emit([&] {
        return llvm::OptimizationRemarkMissed("inline", "NotInlined", Location, Block)
               << "'" << llvm::ore::NV("Callee", &Callee) << "' not inlined into '" << llvm::ore::NV("Caller", &Caller)
               << "' by the policy";
      });
    recordUnattempted();
  }

private:
  void recordUnattempted() {
    if (Default)
      Default->recordUnattemptedInlining();
    Default.reset();
  }

  std::unique_ptr<llvm::InlineAdvice> Default;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_SHOWN_ADVICE_H_
