// A pass plugin through which an unmodified clang tells, for each decision of its register allocator, what it would have
// decided itself, beside the features that LLVM's own ML advisors compute.
//
// The compiler is to be called with the options of the interactive channel (`-regalloc-enable-advisor=release
// -regalloc-evict-interactive-channel-base=BASE`, or those for priorities), where BASE.in and BASE.out lead nowhere
// (links to /dev/null). LLVM then sets up its ML advisor, and this plugin
//
// - stands between that and the allocator, so as to ask LLVM's default advisor about the same interval first;
// - takes the place of `InteractiveModelRunner::evaluateUntyped`, which the ML advisor asks for a decision.
//
// The environment says what to do (all of it is set by llvm/regalloc_plugin.py):
//
//   MLGO_REGALLOC_CHANNEL  BASE: converse over BASE.in and BASE.out, as LLVM's channel does, with one more feature, the
//                          default's decision: `eviction_default` (int64) or `priority_default` (float)
//   MLGO_REGALLOC_LOG      file: decide as the default does, and write a training log with that feature to it
//
// An eviction that is answered with the default's decision is the default's, whatever candidates the ML advisor sees; so
// who answers all decisions with it gets the object of a plain compilation.

#include "regalloc_advisors.h"

#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/PassRegistry.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/Support/JSON.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace compiler_opt {

// A way past `private`, which explicit instantiation does not heed.
template <auto Member, auto &Storage> struct Reach {
  Reach() { Storage = Member; }
  static Reach Instance;
};
template <auto Member, auto &Storage> Reach<Member, Storage> Reach<Member, Storage>::Instance;

using Runner = llvm::InteractiveModelRunner;
const std::vector<llvm::TensorSpec> Runner::*InputSpecs;
const llvm::TensorSpec Runner::*OutputSpec;
template struct Reach<&Runner::InputSpecs, InputSpecs>;
template struct Reach<&Runner::OutputSpec, OutputSpec>;

} // namespace compiler_opt

namespace {

using namespace llvm;
using compiler_opt::Runner;

constexpr size_t kFlushBytes = size_t(1) << 20;

[[noreturn]] void fail(const std::string &Message) {
  errs() << "error: mlgo: " + Message + "\n";
  // Removes the compiler's half-written outputs.
  sys::RunInterruptHandlers();
  _exit(1);
}

const char *variable(const char *Name) {
  const char *Value = std::getenv(Name);
  return Value && *Value ? Value : nullptr;
}

// --- Who is told, and who decides ------------------------------------------------------------------------------------

constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

// The default's decision about the interval that the ML advisor is asked about now; and whether it came to a question.
struct Pending {
  int64_t Position = kNothing; // of the register whose intervals are evicted, in the order of allocation
  float Priority = 0;
  bool AnotherIsWanted = false;
};
Pending Now;

// Writes observations, and reads answers when somebody is there to give them.
class Conversation {
public:
  void enter(StringRef Context) {
    Text += "{\"context\":";
    raw_string_ostream(Text) << json::Value(json::fixUTF8(Context));
    Text += "}\n";
  }

  // The answer is where LLVM expects it.
  void *ask(Runner &Model) {
    const std::vector<TensorSpec> &Specs = Model.*compiler_opt::InputSpecs;
    const TensorSpec &Advice = Model.*compiler_opt::OutputSpec;
    if (!Begun)
      begin(Specs, Advice);
    Text += "{\"observation\":" + std::to_string(NumObservations++) + "}\n";
    for (size_t Index = 0; Index < Specs.size(); ++Index)
      Text.append(static_cast<const char *>(Model.getTensorUntyped(Index)), Specs[Index].getTotalTensorBufferSize());
    // The last candidate stands for evicting nothing.
    Now.Position = std::min(Now.Position, LastCandidate);
    const char *Default = isEviction(Advice) ? reinterpret_cast<const char *>(&Now.Position)
                                             : reinterpret_cast<const char *>(&Now.Priority);
    const size_t Size = Advice.getTotalTensorBufferSize();
    Text.append(Default, Size);
    Text += '\n';
    if (In >= 0) {
      flush();
      receive(Size);
    } else {
      std::memcpy(Answer, Default, Size);
      if (Text.size() > kFlushBytes)
        flush();
    }
    Now.AnotherIsWanted = std::memcmp(Answer, Default, Size) != 0;
    return Answer;
  }

  void flush() {
    size_t Done = 0;
    while (Done < Text.size()) {
      const ssize_t Written = ::write(Out, Text.data() + Done, Text.size() - Done);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        fail("cannot write " + Path + ": " + std::strerror(errno));
      Done += size_t(Written);
    }
    Text.clear();
  }

  bool hasBegun() const { return Begun; }

private:
  void begin(const std::vector<TensorSpec> &Specs, const TensorSpec &Advice) {
    Begun = true;
    if (Advice.getTotalTensorBufferSize() > sizeof Answer || Advice.getElementCount() != 1)
      fail("the advice is not one number");
    if (const char *Base = variable("MLGO_REGALLOC_CHANNEL")) {
      // In the order in which LLVM opens them.
      In = open(std::string(Base) + ".in", O_RDONLY);
      Out = open(std::string(Base) + ".out", O_WRONLY);
    } else if (const char *Log = variable("MLGO_REGALLOC_LOG")) {
      Out = open(Log, O_WRONLY | O_CREAT | O_TRUNC);
    } else {
      fail("neither MLGO_REGALLOC_CHANNEL nor MLGO_REGALLOC_LOG says where to");
    }
    for (const TensorSpec &Spec : Specs)
      LastCandidate = std::max(LastCandidate, int64_t(Spec.getElementCount()) - 1);
    std::string Header;
    raw_string_ostream Stream(Header);
    json::OStream Json(Stream);
    Json.object([&] {
      Json.attributeArray("features", [&] {
        for (const TensorSpec &Spec : Specs)
          Spec.toJSON(Json);
        if (isEviction(Advice))
          TensorSpec::createSpec<int64_t>("eviction_default", {1}).toJSON(Json);
        else
          TensorSpec::createSpec<float>("priority_default", {1}).toJSON(Json);
      });
      Json.attributeBegin("advice");
      Advice.toJSON(Json);
      Json.attributeEnd();
    });
    Stream.flush();
    Text = Header + "\n" + Text;
  }

  int open(const std::string &Name, int Flags) {
    Path = Name;
    const int Descriptor = ::open(Name.c_str(), Flags | O_CLOEXEC, 0666);
    if (Descriptor < 0)
      fail("cannot open " + Name + ": " + std::strerror(errno));
    return Descriptor;
  }

  void receive(size_t Size) {
    size_t Done = 0;
    while (Done < Size) {
      const ssize_t Count = ::read(In, Answer + Done, Size - Done);
      if (Count < 0 && errno == EINTR)
        continue;
      if (Count <= 0)
        fail("nobody answers on the channel any more");
      Done += size_t(Count);
    }
  }

  static bool isEviction(const TensorSpec &Advice) { return Advice.isElementType<int64_t>(); }

  bool Begun = false;
  int64_t LastCandidate = 0;
  int In = -1, Out = -1;
  std::string Path, Text;
  uint64_t NumObservations = 0;
  alignas(8) char Answer[8] = {};
};

Conversation &conversation() {
  // Lives as long as the process.
  static Conversation &Result = *new Conversation();
  return Result;
}

void enterContext(Runner *, StringRef Name) { conversation().enter(Name); }

void *evaluate(Runner *Model) { return conversation().ask(*Model); }

// --- In the place of LLVM's model runner -----------------------------------------------------------------------------

// Where a class has a virtual function: pointers to members say so, plus one (Itanium C++ ABI, 2.3).
template <typename Member> size_t slotOf(Member Function) {
  static_assert(sizeof Function == 2 * sizeof(uintptr_t));
  uintptr_t Offset;
  std::memcpy(&Offset, &Function, sizeof Offset);
  return (Offset - 1) / sizeof(void *);
}

class Slots : public MLModelRunner {
public:
  static size_t evaluate() { return slotOf(&Slots::evaluateUntyped); }
  static size_t switchContext() { return slotOf(&Slots::MLModelRunner::switchContext); }
};

extern "C" void *VirtualTable[] __asm__("_ZTVN4llvm22InteractiveModelRunnerE");

void takeOverModelRunner() {
  void **Functions = VirtualTable + 2; // after the offset to the whole object and its type
  const size_t Evaluate = Slots::evaluate(), SwitchContext = Slots::switchContext();
  const uintptr_t Page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t Begin = uintptr_t(Functions) / Page * Page;
  const uintptr_t End = uintptr_t(Functions + std::max(Evaluate, SwitchContext) + 1);
  if (mprotect(reinterpret_cast<void *>(Begin), End - Begin, PROT_READ | PROT_WRITE) != 0)
    fail(std::string("cannot take the place of the model runner: ") + std::strerror(errno));
  Functions[Evaluate] = reinterpret_cast<void *>(evaluate);
  Functions[SwitchContext] = reinterpret_cast<void *>(enterContext);
  mprotect(reinterpret_cast<void *>(Begin), End - Begin, PROT_READ);
}

// --- Between the allocator and LLVM's ML advisors --------------------------------------------------------------------

class EvictionAdvisor final : public RegAllocEvictionAdvisor {
public:
  EvictionAdvisor(const MachineFunction &MF, const RAGreedy &RA, std::unique_ptr<RegAllocEvictionAdvisor> Model)
      : RegAllocEvictionAdvisor(MF, RA), Default(std::make_unique<DefaultEvictionAdvisor>(MF, RA)),
        Model(std::move(Model)) {}

  MCRegister tryFindEvictionCandidate(const LiveInterval &VirtReg, const AllocationOrder &Order,
                                      uint8_t CostPerUseLimit, const SmallVirtRegSet &FixedRegisters) const override {
    const MCRegister Chosen = Default->tryFindEvictionCandidate(VirtReg, Order, CostPerUseLimit, FixedRegisters);
    Now = Pending();
    Now.Position = position(Order, Chosen);
    const MCRegister Other = Model->tryFindEvictionCandidate(VirtReg, Order, CostPerUseLimit, FixedRegisters);
    return Now.AnotherIsWanted ? Other : Chosen;
  }

  bool canEvictHintInterference(const LiveInterval &VirtReg, MCRegister PhysReg,
                                const SmallVirtRegSet &FixedRegisters) const override {
    return Default->canEvictHintInterference(VirtReg, PhysReg, FixedRegisters);
  }

private:
  // Among the candidates of LLVM's ML advisor.
  static int64_t position(const AllocationOrder &Order, MCRegister Register) {
    if (!Register)
      return kNothing;
    int64_t Position = 0;
    Order.forEach([&](MCPhysReg Candidate) {
      if (Candidate == Register)
        return false;
      ++Position;
      return true;
    });
    return Position;
  }

  const std::unique_ptr<RegAllocEvictionAdvisor> Default, Model;
};

class PriorityAdvisor final : public RegAllocPriorityAdvisor {
public:
  PriorityAdvisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes,
                  std::unique_ptr<RegAllocPriorityAdvisor> Model)
      : RegAllocPriorityAdvisor(MF, RA, Indexes), Default(std::make_unique<DefaultPriorityAdvisor>(MF, RA, Indexes)),
        Model(std::move(Model)) {}

  unsigned getPriority(const LiveInterval &LI) const override {
    Now = Pending();
    const unsigned Chosen = Default->getPriority(LI);
    Now.Priority = float(Chosen);
    const unsigned Other = Model->getPriority(LI);
    // It has more digits than a float.
    return Now.AnotherIsWanted ? Other : Chosen;
  }

private:
  const std::unique_ptr<RegAllocPriorityAdvisor> Default, Model;
};

PassInfo::NormalCtor_t EvictionConstructor, PriorityConstructor;

#if COMPILER_OPT_ADVISOR_PROVIDERS
class EvictionProvider final : public RegAllocEvictionAdvisorProvider {
public:
  EvictionProvider(RegAllocEvictionAdvisorProvider &Models, LLVMContext &Context)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Release, Context), Models(Models) {}

  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      MachineBlockFrequencyInfo *MBFI,
                                                      MachineLoopInfo *Loops) override {
    return std::make_unique<EvictionAdvisor>(MF, RA, Models.getAdvisor(MF, RA, MBFI, Loops));
  }

private:
  RegAllocEvictionAdvisorProvider &Models;
};

class PriorityProvider final : public RegAllocPriorityAdvisorProvider {
public:
  explicit PriorityProvider(RegAllocPriorityAdvisorProvider &Models)
      : RegAllocPriorityAdvisorProvider(AdvisorMode::Release), Models(Models) {}

  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      SlotIndexes &Indexes) override {
    return std::make_unique<PriorityAdvisor>(MF, RA, &Indexes, Models.getAdvisor(MF, RA, Indexes));
  }

private:
  RegAllocPriorityAdvisorProvider &Models;
};
#endif

// LLVM's analysis that hands out advisors, and ours in its place. Never destroyed before the compiler ends.
template <typename Analysis> class OurAnalysis : public Analysis {
public:
  explicit OurAnalysis(PassInfo::NormalCtor_t Constructor)
      : Analysis(Analysis::AdvisorMode::Release), Models(*static_cast<Analysis *>(Constructor())) {}

  void getAnalysisUsage(AnalysisUsage &AU) const override { static_cast<const Pass &>(Models).getAnalysisUsage(AU); }

protected:
  Analysis &Models;
};

class OurEvictionAnalysis final : public OurAnalysis<compiler_opt::EvictionAnalysis> {
public:
  OurEvictionAnalysis() : OurAnalysis(EvictionConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(Module &M) override {
    const bool Changed = static_cast<Pass &>(Models).doInitialization(M);
    Provider = std::make_unique<EvictionProvider>(Models.getProvider(), M.getContext());
    return Changed;
  }
#else
  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    if (Models.getResolver() == nullptr)
      Models.setResolver(getResolver());
    return std::make_unique<EvictionAdvisor>(MF, RA, Models.getAdvisor(MF, RA));
  }
#endif
};

class OurPriorityAnalysis final : public OurAnalysis<compiler_opt::PriorityAnalysis> {
public:
  OurPriorityAnalysis() : OurAnalysis(PriorityConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(Module &M) override {
    const bool Changed = static_cast<Pass &>(Models).doInitialization(M);
    Provider = std::make_unique<PriorityProvider>(Models.getProvider());
    return Changed;
  }
#else
  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    if (Models.getResolver() == nullptr)
      Models.setResolver(getResolver());
    SlotIndexes &Indexes = getAnalysis<SlotIndexesWrapperPass>().getSI();
    return std::make_unique<PriorityAdvisor>(MF, RA, &Indexes, Models.getAdvisor(MF, RA));
  }
#endif
};

template <typename Ours> Pass *construct() { return new Ours(); }

template <typename Analysis>
void takeOver(void (*Initialize)(PassRegistry &), PassInfo::NormalCtor_t Construct, PassInfo::NormalCtor_t &Original) {
  PassRegistry &Registry = *PassRegistry::getPassRegistry();
  Initialize(Registry);
  auto *Info = const_cast<PassInfo *>(Registry.getPassInfo(&Analysis::ID));
  if (Info == nullptr || Info->getNormalCtor() == nullptr)
    fail("this LLVM does not register the analyses of its register allocator");
  Original = Info->getNormalCtor();
  Info->setNormalCtor(Construct);
}

bool isGiven(StringRef Option) {
  const auto Options = cl::getRegisteredOptions();
  const auto Found = Options.find(Option);
  return Found != Options.end() && Found->second->getNumOccurrences() != 0;
}

void takeOverAll() {
  static const bool Done = [] {
    takeOverModelRunner();
    // The same runner serves both, and one compilation is about one of them.
    if (isGiven("regalloc-evict-interactive-channel-base"))
      takeOver<compiler_opt::EvictionAnalysis>(compiler_opt::initializeEvictionAnalysis,
                                               construct<OurEvictionAnalysis>, EvictionConstructor);
    if (isGiven("regalloc-priority-interactive-channel-base"))
      takeOver<compiler_opt::PriorityAnalysis>(compiler_opt::initializePriorityAnalysis,
                                               construct<OurPriorityAnalysis>, PriorityConstructor);
    std::atexit([] {
      if (conversation().hasBegun())
        conversation().flush();
    });
    return true;
  }();
  (void)Done;
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-regalloc", LLVM_VERSION_STRING, [](PassBuilder &) { takeOverAll(); }};
}
