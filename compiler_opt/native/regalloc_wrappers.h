// Wrappers of LLVM's ML advisors for the register allocator: they query the default advisor about each live interval
// first, and return exactly its decision unless the RegallocDecider decides differently.

#ifndef COMPILER_OPT_NATIVE_REGALLOC_WRAPPERS_H_
#define COMPILER_OPT_NATIVE_REGALLOC_WRAPPERS_H_

#include "plugin_environment.h"
#include "regalloc_advisors.h"
#include "regalloc_decider.h"

#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCRegister.h"
#include "llvm/Pass.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace compiler_opt {

class EvictionAdvisorWrapper final : public llvm::RegAllocEvictionAdvisor {
public:
  EvictionAdvisorWrapper(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA,
                         std::unique_ptr<llvm::RegAllocEvictionAdvisor> MLAdvisor, RegallocDecider &Decider)
      : RegAllocEvictionAdvisor(MF, RA), DefaultAdvisor(std::make_unique<llvm::DefaultEvictionAdvisor>(MF, RA)),
        MLAdvisor(std::move(MLAdvisor)), Decider(Decider) {}

  llvm::MCRegister tryFindEvictionCandidate(const llvm::LiveInterval &VirtReg, const llvm::AllocationOrder &Order,
                                            uint8_t CostPerUseLimit,
                                            const llvm::SmallVirtRegSet &FixedRegisters) const override {
    const llvm::MCRegister Default =
        DefaultAdvisor->tryFindEvictionCandidate(VirtReg, Order, CostPerUseLimit, FixedRegisters);
    const QueryScope Scope(Decider);
    CurrentQuery.DefaultCandidate = candidateIndex(Order, Default);
    const llvm::MCRegister Decided =
        MLAdvisor->tryFindEvictionCandidate(VirtReg, Order, CostPerUseLimit, FixedRegisters);
    return CurrentQuery.DiffersFromDefault ? Decided : Default;
  }

  bool canEvictHintInterference(const llvm::LiveInterval &VirtReg, llvm::MCRegister PhysReg,
                                const llvm::SmallVirtRegSet &FixedRegisters) const override {
    return DefaultAdvisor->canEvictHintInterference(VirtReg, PhysReg, FixedRegisters);
  }

private:
  // The register's index among the candidates of LLVM's ML advisor.
  static int64_t candidateIndex(const llvm::AllocationOrder &Order, llvm::MCRegister Register) {
    if (!Register)
      return kNoCandidate;
    int64_t Index = 0;
    Order.forEach([&](llvm::MCPhysReg Candidate) {
      if (Candidate == Register)
        return false;
      ++Index;
      return true;
    });
    return Index;
  }

  const std::unique_ptr<llvm::RegAllocEvictionAdvisor> DefaultAdvisor, MLAdvisor;
  RegallocDecider &Decider;
};

class PriorityAdvisorWrapper final : public llvm::RegAllocPriorityAdvisor {
public:
  PriorityAdvisorWrapper(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA, llvm::SlotIndexes *Indexes,
                         std::unique_ptr<llvm::RegAllocPriorityAdvisor> MLAdvisor, RegallocDecider &Decider)
      : RegAllocPriorityAdvisor(MF, RA, Indexes),
        DefaultAdvisor(std::make_unique<llvm::DefaultPriorityAdvisor>(MF, RA, Indexes)),
        MLAdvisor(std::move(MLAdvisor)), Decider(Decider) {}

  unsigned getPriority(const llvm::LiveInterval &LI) const override {
    const unsigned Default = DefaultAdvisor->getPriority(LI);
    const QueryScope Scope(Decider);
    CurrentQuery.DefaultPriority = float(Default);
    const unsigned Decided = MLAdvisor->getPriority(LI);
    // The default priority may have more digits than a float.
    return CurrentQuery.DiffersFromDefault ? Decided : Default;
  }

private:
  const std::unique_ptr<llvm::RegAllocPriorityAdvisor> DefaultAdvisor, MLAdvisor;
  RegallocDecider &Decider;
};

// LLVM's constructors of the analyses below. Set before code is generated, constant afterwards.
inline llvm::PassInfo::NormalCtor_t OriginalEvictionConstructor = nullptr, OriginalPriorityConstructor = nullptr;

#if COMPILER_OPT_ADVISOR_PROVIDERS
class EvictionProviderWrapper final : public llvm::RegAllocEvictionAdvisorProvider {
public:
  EvictionProviderWrapper(llvm::RegAllocEvictionAdvisorProvider &Original, llvm::LLVMContext &Context,
                          RegallocDecider &Decider)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Release, Context), Original(Original), Decider(Decider) {}

  std::unique_ptr<llvm::RegAllocEvictionAdvisor> getAdvisor(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA,
                                                            llvm::MachineBlockFrequencyInfo *MBFI,
                                                            llvm::MachineLoopInfo *Loops) override {
    const QueryScope Scope(Decider);
    return std::make_unique<EvictionAdvisorWrapper>(MF, RA, Original.getAdvisor(MF, RA, MBFI, Loops), Decider);
  }

private:
  llvm::RegAllocEvictionAdvisorProvider &Original;
  RegallocDecider &Decider;
};

class PriorityProviderWrapper final : public llvm::RegAllocPriorityAdvisorProvider {
public:
  PriorityProviderWrapper(llvm::RegAllocPriorityAdvisorProvider &Original, RegallocDecider &Decider)
      : RegAllocPriorityAdvisorProvider(AdvisorMode::Release), Original(Original), Decider(Decider) {}

  std::unique_ptr<llvm::RegAllocPriorityAdvisor> getAdvisor(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA,
                                                            llvm::SlotIndexes &Indexes) override {
    const QueryScope Scope(Decider);
    return std::make_unique<PriorityAdvisorWrapper>(MF, RA, &Indexes, Original.getAdvisor(MF, RA, Indexes), Decider);
  }

private:
  llvm::RegAllocPriorityAdvisorProvider &Original;
  RegallocDecider &Decider;
};
#endif

// Replaces an analysis that provides advisors. Each code generator has one such pass, and with it one RegallocDecider.
// The original analysis is never destroyed, because it may share the wrapper's resolver.
template <typename Analysis> class AnalysisWrapper : public Analysis {
public:
  explicit AnalysisWrapper(llvm::PassInfo::NormalCtor_t Constructor)
      : Analysis(Analysis::AdvisorMode::Release), Original(*static_cast<Analysis *>(Constructor())) {}

  void getAnalysisUsage(llvm::AnalysisUsage &AU) const override {
    static_cast<const llvm::Pass &>(Original).getAnalysisUsage(AU);
  }

protected:
  Analysis &Original;
  RegallocDecider Decider;
};

class EvictionAnalysisWrapper final : public AnalysisWrapper<EvictionAnalysis> {
public:
  EvictionAnalysisWrapper() : AnalysisWrapper(OriginalEvictionConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(llvm::Module &M) override {
    const bool Changed = static_cast<llvm::Pass &>(Original).doInitialization(M);
    Provider = std::make_unique<EvictionProviderWrapper>(Original.getProvider(), M.getContext(), Decider);
    return Changed;
  }
#else
  std::unique_ptr<llvm::RegAllocEvictionAdvisor> getAdvisor(const llvm::MachineFunction &MF,
                                                            const llvm::RAGreedy &RA) override {
    if (Original.getResolver() == nullptr)
      Original.setResolver(getResolver());
    const QueryScope Scope(Decider);
    return std::make_unique<EvictionAdvisorWrapper>(MF, RA, Original.getAdvisor(MF, RA), Decider);
  }
#endif
};

class PriorityAnalysisWrapper final : public AnalysisWrapper<PriorityAnalysis> {
public:
  PriorityAnalysisWrapper() : AnalysisWrapper(OriginalPriorityConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(llvm::Module &M) override {
    const bool Changed = static_cast<llvm::Pass &>(Original).doInitialization(M);
    Provider = std::make_unique<PriorityProviderWrapper>(Original.getProvider(), Decider);
    return Changed;
  }
#else
  std::unique_ptr<llvm::RegAllocPriorityAdvisor> getAdvisor(const llvm::MachineFunction &MF,
                                                            const llvm::RAGreedy &RA) override {
    if (Original.getResolver() == nullptr)
      Original.setResolver(getResolver());
    llvm::SlotIndexes &Indexes = getAnalysis<llvm::SlotIndexesWrapperPass>().getSI();
    const QueryScope Scope(Decider);
    return std::make_unique<PriorityAdvisorWrapper>(MF, RA, &Indexes, Original.getAdvisor(MF, RA), Decider);
  }
#endif
};

// Registers the wrapper in the place of the analysis, and stores the analysis's own constructor in `Original`.
template <typename Analysis, typename Wrapper>
void replaceAnalysis(void (*Initialize)(llvm::PassRegistry &), llvm::PassInfo::NormalCtor_t &Original) {
  llvm::PassRegistry &Registry = *llvm::PassRegistry::getPassRegistry();
  Initialize(Registry);
  auto *Info = const_cast<llvm::PassInfo *>(Registry.getPassInfo(&Analysis::ID));
  if (Info == nullptr || Info->getNormalCtor() == nullptr)
    fail("this LLVM does not register the advisor analyses of its register allocator");
  Original = Info->getNormalCtor();
  Info->setNormalCtor([]() -> llvm::Pass * { return new Wrapper(); });
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_REGALLOC_WRAPPERS_H_
