// The advisors of LLVM's greedy register allocator and the analyses that provide them: from LLVM's headers if it
// installs them (LLVM 20 and later), else declared here. LLVM's shared library exports them in either case.
//
// These declarations must have the members and virtual functions of LLVM's, in the same order. Versions that they were
// not compared with are therefore rejected; later ones have an `AllocationOrder` with more members. `llvm/plugin.py`
// compiles code with every plugin that it builds before anyone can use it.

#ifndef COMPILER_OPT_NATIVE_REGALLOC_ADVISORS_H_
#define COMPILER_OPT_NATIVE_REGALLOC_ADVISORS_H_

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/Register.h"
#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/MC/MCRegister.h"
#include "llvm/Pass.h"

// `llvm/regalloc_plugin.py` checks the version before it compiles.
#if LLVM_VERSION_MAJOR < 19 || LLVM_VERSION_MAJOR > 22
#error "the register-allocation plugin supports LLVM 19 to 22"
#endif

#if __has_include("llvm/CodeGen/RegAllocEvictionAdvisor.h")
#define COMPILER_OPT_ADVISOR_PROVIDERS 1
#include "llvm/CodeGen/RegAllocEvictionAdvisor.h"
#include "llvm/CodeGen/RegAllocPriorityAdvisor.h"
#else
#define COMPILER_OPT_ADVISOR_PROVIDERS 0
#if LLVM_VERSION_MAJOR != 19
#error "this LLVM neither installs the headers of its register allocator's advisors nor is it LLVM 19"
#endif
#endif

namespace llvm {

class LiveIntervals;
class LiveRegMatrix;
class MachineFunction;
class MachineRegisterInfo;
class PassRegistry;
class RAGreedy;
class RegisterClassInfo;
class TargetRegisterInfo;
class VirtRegMap;

#if !COMPILER_OPT_ADVISOR_PROVIDERS
class AllocationOrder;
struct EvictionCost;
using SmallVirtRegSet = SmallSet<Register, 16>;

class RegAllocEvictionAdvisor {
public:
  virtual ~RegAllocEvictionAdvisor() = default;
  virtual MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t CostPerUseLimit,
                                              const SmallVirtRegSet &FixedRegisters) const = 0;
  virtual bool canEvictHintInterference(const LiveInterval &, MCRegister, const SmallVirtRegSet &) const = 0;

protected:
  RegAllocEvictionAdvisor(const MachineFunction &MF, const RAGreedy &RA);

  const MachineFunction &MF;
  const RAGreedy &RA;
  LiveRegMatrix *const Matrix;
  LiveIntervals *const LIS;
  VirtRegMap *const VRM;
  MachineRegisterInfo *const MRI;
  const TargetRegisterInfo *const TRI;
  const RegisterClassInfo &RegClassInfo;
  const ArrayRef<uint8_t> RegCosts;
  const bool EnableLocalReassign;
};

class DefaultEvictionAdvisor : public RegAllocEvictionAdvisor {
public:
  DefaultEvictionAdvisor(const MachineFunction &MF, const RAGreedy &RA) : RegAllocEvictionAdvisor(MF, RA) {}

private:
  MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t,
                                      const SmallVirtRegSet &) const override;
  bool canEvictHintInterference(const LiveInterval &, MCRegister, const SmallVirtRegSet &) const override;
};

class RegAllocEvictionAdvisorAnalysis : public ImmutablePass {
public:
  enum class AdvisorMode : int { Default, Release, Development };
  explicit RegAllocEvictionAdvisorAnalysis(AdvisorMode Mode) : ImmutablePass(ID), Mode(Mode) {}
  static char ID;
  virtual std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) = 0;
  virtual void logRewardIfNeeded(const MachineFunction &, function_ref<float()>) {}

private:
  StringRef getPassName() const override;
  const AdvisorMode Mode;
};

class RegAllocPriorityAdvisor {
public:
  virtual ~RegAllocPriorityAdvisor() = default;
  virtual unsigned getPriority(const LiveInterval &LI) const = 0;
  RegAllocPriorityAdvisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *const Indexes);

protected:
  const RAGreedy &RA;
  LiveIntervals *const LIS;
  VirtRegMap *const VRM;
  MachineRegisterInfo *const MRI;
  const TargetRegisterInfo *const TRI;
  const RegisterClassInfo &RegClassInfo;
  SlotIndexes *const Indexes;
  const bool RegClassPriorityTrumpsGlobalness;
  const bool ReverseLocalAssignment;
};

class DefaultPriorityAdvisor : public RegAllocPriorityAdvisor {
public:
  DefaultPriorityAdvisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *const Indexes)
      : RegAllocPriorityAdvisor(MF, RA, Indexes) {}

private:
  unsigned getPriority(const LiveInterval &LI) const override;
};

class RegAllocPriorityAdvisorAnalysis : public ImmutablePass {
public:
  enum class AdvisorMode : int { Default, Release, Development };
  explicit RegAllocPriorityAdvisorAnalysis(AdvisorMode Mode) : ImmutablePass(ID), Mode(Mode) {}
  static char ID;
  virtual std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) = 0;
  virtual void logRewardIfNeeded(const MachineFunction &, function_ref<float()>) {}

private:
  StringRef getPassName() const override;
  const AdvisorMode Mode;
};

void initializeRegAllocEvictionAdvisorAnalysisPass(PassRegistry &);
void initializeRegAllocPriorityAdvisorAnalysisPass(PassRegistry &);
#else
void initializeRegAllocEvictionAdvisorAnalysisLegacyPass(PassRegistry &);
void initializeRegAllocPriorityAdvisorAnalysisLegacyPass(PassRegistry &);
#endif

// The order in which registers are tried for a live interval. LLVM installs no header for it; these are the members in
// LLVM 19 to 22.
class AllocationOrder {
public:
  // Calls `Visit` with each register in order, until it returns false. An advisor's candidates are a prefix of this
  // order.
  template <typename Callable> void forEach(Callable Visit) const {
    for (const MCPhysReg Hint : Hints)
      if (!Visit(Hint))
        return;
    for (int Position = 0; Position < IterationLimit; ++Position)
      if (!is_contained(Hints, Order[size_t(Position)]) && !Visit(Order[size_t(Position)]))
        return;
  }

private:
  AllocationOrder() = delete;
  const SmallVector<MCPhysReg, 16> Hints;
  ArrayRef<MCPhysReg> Order;
  const int IterationLimit;
};

} // namespace llvm

namespace compiler_opt {

#if COMPILER_OPT_ADVISOR_PROVIDERS
using EvictionAnalysis = llvm::RegAllocEvictionAdvisorAnalysisLegacy;
using PriorityAnalysis = llvm::RegAllocPriorityAdvisorAnalysisLegacy;
inline constexpr auto initializeEvictionAnalysis = llvm::initializeRegAllocEvictionAdvisorAnalysisLegacyPass;
inline constexpr auto initializePriorityAnalysis = llvm::initializeRegAllocPriorityAdvisorAnalysisLegacyPass;
#else
using EvictionAnalysis = llvm::RegAllocEvictionAdvisorAnalysis;
using PriorityAnalysis = llvm::RegAllocPriorityAdvisorAnalysis;
inline constexpr auto initializeEvictionAnalysis = llvm::initializeRegAllocEvictionAdvisorAnalysisPass;
inline constexpr auto initializePriorityAnalysis = llvm::initializeRegAllocPriorityAdvisorAnalysisPass;
#endif

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_REGALLOC_ADVISORS_H_
