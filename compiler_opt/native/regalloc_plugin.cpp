// A pass plugin for the register allocator of an unmodified clang: it makes decisions by a trained policy, or sends the
// default decision beside the features that LLVM's own ML advisors compute.
//
// LLVM must be made to ask its ML advisor over an unused interactive channel, by the options
// `-regalloc-enable-advisor=release -regalloc-evict-interactive-channel-base=BASE` (or those for priorities), where BASE.in
// and BASE.out are links to /dev/null. With a policy, the plugin sets these options itself unless the command line has
// them; BASE is then `mlgo-nowhere` beside this library. The plugin
//
// - stands between that advisor and the allocator, to ask LLVM's default advisor about the same interval first;
// - replaces `InteractiveModelRunner::evaluateUntyped`, which the ML advisor calls for a decision.
//
// It is configured by environment variables:
//
//   MLGO_REGALLOC_CHANNEL  BASE: a channel over BASE.in and BASE.out like LLVM's, with one more feature, the default
//                          decision: `eviction_default` (int64) or `priority_default` (float)
//   MLGO_REGALLOC_MODE     `policy` (the default), or `default` for the compiler's default decisions
//   MLGO_REGALLOC_POLICY   file of a native policy; by default the policy that is built in. Without either, the default
//                          advisor decides (under MLGO_REGALLOC_STRICT, that is an error)
//   MLGO_REGALLOC_LOG      file to write a training log to: the features, the default decision, and last the decision
//   MLGO_REGALLOC_STRICT   1: fail the compilation if these settings cannot be followed; otherwise it continues without
//                          the policy, with a warning
//
// A decision that equals the default is the default's to the last bit, whatever candidates the ML advisor sees and despite
// rounding to float: answering every question with the default decision reproduces the object of a plain compilation.
//
// A linker generates code in several threads at once (`lld --lto-partitions`, ThinLTO). The settings are read once and
// never change; all other state belongs to one code generator (`Decisions`) or to a thread's current question (`Now`). A
// log or a channel can serve one code generator only: further ones are refused with a message.

#include "plugin_environment.h"
#include "regalloc_advisors.h"
#include "regalloc_policy.h"

#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace compiler_opt {

// A way past `private`, which explicit instantiation does not heed. Set when the library is loaded.
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
using compiler_opt::fail;
using compiler_opt::isSet;
using compiler_opt::Runner;
using compiler_opt::variable;

constexpr size_t kFlushBytes = size_t(1) << 20;

// Before anything was decided.
void complain(const std::string &Message) {
  compiler_opt::complain(Message, "compiling with the default heuristic", "MLGO_REGALLOC_STRICT");
}

// --- A policy --------------------------------------------------------------------------------------------------------

// How a network's answer becomes a priority, see spaces/continuous.py.
struct Scale {
  double Lowest = 0, Highest = 0, Steps = 0;

  float advice(double Action) const {
    const double Largest = std::rint((Highest - Lowest) * Steps);
    return float(std::min(std::max(std::rint((Action - Lowest) * Steps), 0.0), Largest));
  }
};

struct Policy {
  compiler_opt::RegallocPolicy Network;
  std::string Problem;
  Scale Numbers;

  // Reads what the environment names or what is built in; nothing when there is none of either. Says what is wrong.
  static std::unique_ptr<Policy> read(std::string &Wrong) {
    const compiler_opt::PolicyBytes Bytes = compiler_opt::PolicyBytes::find("MLGO_REGALLOC_POLICY");
    Wrong = Bytes.Wrong;
    if (Wrong.empty() && !Bytes.Blob)
      return nullptr;
    auto Result = std::make_unique<Policy>();
    if (Wrong.empty())
      if (const char *Problem = Result->Network.load(Bytes.Blob, Bytes.Size))
        Wrong = Problem;
    if (Wrong.empty())
      Wrong = Result->readMetadata();
    if (Wrong.empty())
      return Result;
    Wrong = Bytes.Origin + ": " + Wrong;
    return nullptr;
  }

private:
  std::string readMetadata() {
    Expected<json::Value> Read = json::parse(Network.network().metadata());
    const json::Object *Metadata = Read ? Read->getAsObject() : nullptr;
    if (!Read)
      consumeError(Read.takeError());
    if (Metadata)
      Problem = Metadata->getString("problem").value_or("").str();
    if (Problem == "regalloc_eviction")
      return "";
    if (Problem != "regalloc_priority")
      return "it is not for the register allocator";
    const json::Object *Given = Metadata->getObject("scale");
    if (Given)
      Numbers = {Given->getNumber("lowest").value_or(0), Given->getNumber("highest").value_or(0),
                 Given->getNumber("steps").value_or(0)};
    return Numbers.Lowest < Numbers.Highest && Numbers.Steps >= 1 ? "" : "it does not say how its answers are meant";
  }
};

// --- Who is told, and who decides ------------------------------------------------------------------------------------

constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

class Decisions;

// The interval that the ML advisor is asked about in this thread, and the default's decision about it. LLVM's model
// runner is not told who asks, so our advisors leave it here.
struct Question {
  Decisions *By = nullptr;
  int64_t Position = kNothing; // of the register whose intervals are evicted, in the order of allocation
  float Priority = 0;
  bool AnotherIsWanted = false;
};
thread_local Question Now;

// For as long as LLVM's ML advisor is at work.
class Asking {
public:
  explicit Asking(Decisions &By) { Now.By = &By; }
  ~Asking() { Now = Question(); }
  Asking(const Asking &) = delete;
};

// The policy that the process was given; null: the default decides. Set before code is generated, then only read.
const Policy *ThePolicy;

// Takes the decisions of one code generator, which is one thread, or has them taken at the other end of a channel;
// writes down what was asked.
class Decisions {
public:
  Decisions() {
    if (ThePolicy)
      By = std::make_unique<Policy>(*ThePolicy);
  }
  Decisions(const Decisions &) = delete;
  ~Decisions() { flush(); }

  void enter(StringRef Context) {
    if (!Writes)
      return;
    Text += "{\"context\":";
    raw_string_ostream(Text) << json::Value(json::fixUTF8(Context));
    Text += "}\n";
  }

  // The answer is where LLVM expects it.
  void *decide(Runner &Model) {
    const std::vector<TensorSpec> &Specs = Model.*compiler_opt::InputSpecs;
    const TensorSpec &Advice = Model.*compiler_opt::OutputSpec;
    if (!Begun)
      begin(Specs, Advice);
    // The last candidate stands for evicting nothing.
    Now.Position = std::min(Now.Position, LastCandidate);
    const char *Default = isEviction(Advice) ? reinterpret_cast<const char *>(&Now.Position)
                                             : reinterpret_cast<const char *>(&Now.Priority);
    const size_t Size = Advice.getTotalTensorBufferSize();
    if (Writes)
      write(Model, Specs, Default, Size);
    if (In >= 0) {
      Text += '\n';
      flush();
      receive(Size);
    } else if (By) {
      answer(Model, isEviction(Advice));
    } else {
      std::memcpy(Answer, Default, Size);
    }
    if (Writes && In < 0) {
      Text.append(Answer, Size);
      Text += '\n';
      if (Text.size() > kFlushBytes)
        flush();
    }
    Now.AnotherIsWanted = std::memcmp(Answer, Default, Size) != 0;
    return Answer;
  }

private:
  void flush() {
    size_t Done = 0;
    while (Out >= 0 && Done < Text.size()) {
      const ssize_t Written = ::write(Out, Text.data() + Done, Text.size() - Done);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        fail("cannot write " + Path + ": " + std::strerror(errno));
      Done += size_t(Written);
    }
    Text.clear();
  }

  void begin(const std::vector<TensorSpec> &Specs, const TensorSpec &Advice) {
    Begun = true;
    if (Advice.getTotalTensorBufferSize() > sizeof Answer || Advice.getElementCount() != 1)
      fail("the advice is not one number");
    for (const TensorSpec &Spec : Specs)
      LastCandidate = std::max(LastCandidate, int64_t(Spec.getElementCount()) - 1);
    static std::atomic<bool> IsTaken{false};
    if (Writes && IsTaken.exchange(true))
      fail("code is generated in several parts, but a log or a channel takes the decisions of one only; link with "
           "-Wl,--lto-partitions=1 and without ThinLTO");
    if (const char *Base = variable("MLGO_REGALLOC_CHANNEL")) {
      // In the order in which LLVM opens them.
      In = open(std::string(Base) + ".in", O_RDONLY);
      Out = open(std::string(Base) + ".out", O_WRONLY);
    } else if (const char *Log = variable("MLGO_REGALLOC_LOG")) {
      Out = open(Log, O_WRONLY | O_CREAT | O_TRUNC);
    }
    if (Writes)
      Text = header(Specs, Advice) + Text;
    if (!By)
      return;
    std::vector<compiler_opt::SentTensor> Sent;
    for (const TensorSpec &Spec : Specs)
      Sent.push_back({Spec.name(), Spec.isElementType<float>(), size_t(Spec.getElementCount())});
    const std::string Wrong = By->Network.bind(Sent);
    if (!Wrong.empty()) {
      static std::once_flag IsSaid;
      std::call_once(IsSaid, [&] { complain("the policy does not fit LLVM " LLVM_VERSION_STRING ": " + Wrong); });
      By.reset();
    }
  }

  std::string header(const std::vector<TensorSpec> &Specs, const TensorSpec &Advice) const {
    std::string Text;
    raw_string_ostream Stream(Text);
    json::OStream Json(Stream);
    Json.object([&] {
      Json.attributeArray("features", [&] {
        for (const TensorSpec &Spec : Specs)
          Spec.toJSON(Json);
        if (isEviction(Advice))
          TensorSpec::createSpec<int64_t>("eviction_default", {1}).toJSON(Json);
        else
          TensorSpec::createSpec<float>("priority_default", {1}).toJSON(Json);
        if (In < 0)
          Advice.toJSON(Json);
      });
      Json.attributeBegin("advice");
      Advice.toJSON(Json);
      Json.attributeEnd();
    });
    Stream << '\n';
    return Stream.str();
  }

  void write(Runner &Model, const std::vector<TensorSpec> &Specs, const char *Default, size_t DefaultSize) {
    Text += "{\"observation\":" + std::to_string(NumObservations++) + "}\n";
    for (size_t Index = 0; Index < Specs.size(); ++Index)
      Text.append(static_cast<const char *>(Model.getTensorUntyped(Index)), Specs[Index].getTotalTensorBufferSize());
    Text.append(Default, DefaultSize);
  }

  void answer(Runner &Model, bool IsEviction) {
    Tensors.resize((Model.*compiler_opt::InputSpecs).size());
    for (size_t Index = 0; Index < Tensors.size(); ++Index)
      Tensors[Index] = Model.getTensorUntyped(Index);
    if (IsEviction) {
      const int64_t Place = By->Network.choose(Tensors, Now.Position);
      std::memcpy(Answer, &Place, sizeof Place);
    } else {
      const float Priority = By->Numbers.advice(By->Network.number(Tensors));
      std::memcpy(Answer, &Priority, sizeof Priority);
    }
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

  std::unique_ptr<Policy> By;
  const bool Writes = variable("MLGO_REGALLOC_CHANNEL") || variable("MLGO_REGALLOC_LOG");
  bool Begun = false;
  int64_t LastCandidate = 0;
  int In = -1, Out = -1;
  std::string Path, Text;
  uint64_t NumObservations = 0;
  std::vector<const void *> Tensors;
  alignas(8) char Answer[8] = {};
};

Decisions &decisions() {
  if (!Now.By)
    fail("LLVM asks for a decision that is not about the register allocator's candidates; leave the inliner's channel "
         "and the register-allocation plugin to compilations of their own");
  return *Now.By;
}

void enterContext(Runner *, StringRef Name) { decisions().enter(Name); }

void *evaluate(Runner *Model) { return decisions().decide(*Model); }

// --- In the place of LLVM's model runner -----------------------------------------------------------------------------

#if !defined(__x86_64__)
#error "the register-allocation plugin knows how x86-64 lays out pointers to members and virtual tables; use the channel"
#endif

// Where a class has a virtual function: pointers to members say so, plus one (Itanium C++ ABI, 2.3; other targets, such
// as AArch64, mark them in another place).
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
  EvictionAdvisor(const MachineFunction &MF, const RAGreedy &RA, std::unique_ptr<RegAllocEvictionAdvisor> Model,
                  Decisions &By)
      : RegAllocEvictionAdvisor(MF, RA), Default(std::make_unique<DefaultEvictionAdvisor>(MF, RA)),
        Model(std::move(Model)), By(By) {}

  MCRegister tryFindEvictionCandidate(const LiveInterval &VirtReg, const AllocationOrder &Order,
                                      uint8_t CostPerUseLimit, const SmallVirtRegSet &FixedRegisters) const override {
    const MCRegister Chosen = Default->tryFindEvictionCandidate(VirtReg, Order, CostPerUseLimit, FixedRegisters);
    const Asking Asked(By);
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
  Decisions &By;
};

class PriorityAdvisor final : public RegAllocPriorityAdvisor {
public:
  PriorityAdvisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes,
                  std::unique_ptr<RegAllocPriorityAdvisor> Model, Decisions &By)
      : RegAllocPriorityAdvisor(MF, RA, Indexes), Default(std::make_unique<DefaultPriorityAdvisor>(MF, RA, Indexes)),
        Model(std::move(Model)), By(By) {}

  unsigned getPriority(const LiveInterval &LI) const override {
    const unsigned Chosen = Default->getPriority(LI);
    const Asking Asked(By);
    Now.Priority = float(Chosen);
    const unsigned Other = Model->getPriority(LI);
    // It has more digits than a float.
    return Now.AnotherIsWanted ? Other : Chosen;
  }

private:
  const std::unique_ptr<RegAllocPriorityAdvisor> Default, Model;
  Decisions &By;
};

// LLVM's own. Set before code is generated, then only read.
PassInfo::NormalCtor_t EvictionConstructor, PriorityConstructor;

#if COMPILER_OPT_ADVISOR_PROVIDERS
class EvictionProvider final : public RegAllocEvictionAdvisorProvider {
public:
  EvictionProvider(RegAllocEvictionAdvisorProvider &Models, LLVMContext &Context, Decisions &By)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Release, Context), Models(Models), By(By) {}

  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      MachineBlockFrequencyInfo *MBFI,
                                                      MachineLoopInfo *Loops) override {
    const Asking Asked(By);
    return std::make_unique<EvictionAdvisor>(MF, RA, Models.getAdvisor(MF, RA, MBFI, Loops), By);
  }

private:
  RegAllocEvictionAdvisorProvider &Models;
  Decisions &By;
};

class PriorityProvider final : public RegAllocPriorityAdvisorProvider {
public:
  PriorityProvider(RegAllocPriorityAdvisorProvider &Models, Decisions &By)
      : RegAllocPriorityAdvisorProvider(AdvisorMode::Release), Models(Models), By(By) {}

  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      SlotIndexes &Indexes) override {
    const Asking Asked(By);
    return std::make_unique<PriorityAdvisor>(MF, RA, &Indexes, Models.getAdvisor(MF, RA, Indexes), By);
  }

private:
  RegAllocPriorityAdvisorProvider &Models;
  Decisions &By;
};
#endif

// LLVM's analysis that hands out advisors, and ours in its place: one of each for a code generator. LLVM's is never
// destroyed, as it may share our resolver.
template <typename Analysis> class OurAnalysis : public Analysis {
public:
  explicit OurAnalysis(PassInfo::NormalCtor_t Constructor)
      : Analysis(Analysis::AdvisorMode::Release), Models(*static_cast<Analysis *>(Constructor())) {}

  void getAnalysisUsage(AnalysisUsage &AU) const override { static_cast<const Pass &>(Models).getAnalysisUsage(AU); }

protected:
  Analysis &Models;
  Decisions By;
};

class OurEvictionAnalysis final : public OurAnalysis<compiler_opt::EvictionAnalysis> {
public:
  OurEvictionAnalysis() : OurAnalysis(EvictionConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(Module &M) override {
    const bool Changed = static_cast<Pass &>(Models).doInitialization(M);
    Provider = std::make_unique<EvictionProvider>(Models.getProvider(), M.getContext(), By);
    return Changed;
  }
#else
  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    if (Models.getResolver() == nullptr)
      Models.setResolver(getResolver());
    const Asking Asked(By);
    return std::make_unique<EvictionAdvisor>(MF, RA, Models.getAdvisor(MF, RA), By);
  }
#endif
};

class OurPriorityAnalysis final : public OurAnalysis<compiler_opt::PriorityAnalysis> {
public:
  OurPriorityAnalysis() : OurAnalysis(PriorityConstructor) {}

#if COMPILER_OPT_ADVISOR_PROVIDERS
  bool doInitialization(Module &M) override {
    const bool Changed = static_cast<Pass &>(Models).doInitialization(M);
    Provider = std::make_unique<PriorityProvider>(Models.getProvider(), By);
    return Changed;
  }
#else
  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    if (Models.getResolver() == nullptr)
      Models.setResolver(getResolver());
    SlotIndexes &Indexes = getAnalysis<SlotIndexesWrapperPass>().getSI();
    const Asking Asked(By);
    return std::make_unique<PriorityAdvisor>(MF, RA, &Indexes, Models.getAdvisor(MF, RA), By);
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

cl::Option *option(StringRef Name) {
  const auto Options = cl::getRegisteredOptions();
  const auto Found = Options.find(Name);
  return Found == Options.end() ? nullptr : Found->second;
}

bool isGiven(StringRef Name) {
  const cl::Option *Found = option(Name);
  return Found && Found->getNumOccurrences() != 0;
}

constexpr char EvictionChannel[] = "regalloc-evict-interactive-channel-base";
constexpr char PriorityChannel[] = "regalloc-priority-interactive-channel-base";

// Base of the files beside this library that lead nowhere; empty when they are not there.
std::string nowhere() {
  Dl_info Info;
  if (dladdr(reinterpret_cast<void *>(evaluate), &Info) == 0 || Info.dli_fname == nullptr)
    return "";
  const std::string Own = Info.dli_fname;
  const std::string Base = Own.substr(0, Own.rfind('/') + 1) + "mlgo-nowhere";
  return access((Base + ".in").c_str(), R_OK) == 0 && access((Base + ".out").c_str(), W_OK) == 0 ? Base : "";
}

// Has LLVM ask its ML advisor for a policy's decisions. Says what is wrong.
std::string enable(const Policy &By) {
  const bool IsEviction = By.Problem == "regalloc_eviction";
  cl::Option *Advisor = option(IsEviction ? "regalloc-enable-advisor" : "regalloc-enable-priority-advisor");
  const char *Channel = IsEviction ? EvictionChannel : PriorityChannel;
  if (isGiven(Channel))
    return "";
  if (!Advisor || !option(Channel))
    return "this LLVM has no such advisor";
  if (Advisor->getNumOccurrences() != 0)
    return "the command line has an advisor of its own";
  const std::string Base = nowhere();
  if (Base.empty())
    return "mlgo-nowhere.in and mlgo-nowhere.out, links to /dev/null, are missing beside the plugin";
  if (Advisor->addOccurrence(0, Advisor->ArgStr, "release") || option(Channel)->addOccurrence(0, Channel, Base))
    return "this LLVM does not take the advisor's options";
  return "";
}

// Decides what is done in this process, and has LLVM ask our advisors.
void takeOverAll() {
  std::string Wrong = compiler_opt::wrongVersion();
  if (!Wrong.empty())
    return complain(Wrong);
  std::unique_ptr<Policy> By;
  const char *Mode = variable("MLGO_REGALLOC_MODE");
  const bool ByDefault = Mode && std::strcmp(Mode, "default") == 0;
  if (Mode && !ByDefault && std::strcmp(Mode, "policy") != 0) {
    Wrong = std::string("MLGO_REGALLOC_MODE: expected policy or default, found ") + Mode;
  } else if (!variable("MLGO_REGALLOC_CHANNEL") && !ByDefault) {
    By = Policy::read(Wrong);
    if (!By && Wrong.empty() && isSet("MLGO_REGALLOC_STRICT"))
      Wrong = "no policy: none is built in, and MLGO_REGALLOC_POLICY names none";
  }
  if (By)
    Wrong = enable(*By);
  if (!Wrong.empty()) {
    complain(Wrong);
    By.reset();
  }
  // Asked over a channel on which nobody is, LLVM would wait for ever: then the default answers.
  if (!isGiven(EvictionChannel) && !isGiven(PriorityChannel)) {
    if (variable("MLGO_REGALLOC_CHANNEL") || variable("MLGO_REGALLOC_LOG"))
      complain("nothing is decided or logged: the command line does not have LLVM ask an advisor of its register "
               "allocator");
    return;
  }
  ThePolicy = By.release(); // lives as long as the process
  takeOverModelRunner();
  // The same runner serves both.
  if (isGiven(EvictionChannel))
    takeOver<compiler_opt::EvictionAnalysis>(compiler_opt::initializeEvictionAnalysis, construct<OurEvictionAnalysis>,
                                             EvictionConstructor);
  if (isGiven(PriorityChannel))
    takeOver<compiler_opt::PriorityAnalysis>(compiler_opt::initializePriorityAnalysis, construct<OurPriorityAnalysis>,
                                             PriorityConstructor);
}

// A linker builds pipelines in several threads; each comes by here before it generates code.
void takeOverOnce(PassBuilder &) {
  static std::once_flag IsDone;
  std::call_once(IsDone, takeOverAll);
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-regalloc", LLVM_VERSION_STRING, takeOverOnce};
}
