// A pass plugin that makes inlining decisions inside an unmodified clang, opt or ld.lld.
//
// Its features are those of LLVM's own MLInlineAdvisor (see inline_advisor.h). The plugin is built once for each version of
// LLVM (see llvm/plugin.py) and configured by environment variables:
//
//   MLGO_INLINER_MODE         `policy` (the default), or `default` for the compiler's default decisions
//   MLGO_INLINER_POLICY       file of a native policy; by default the policy that is built in, if any
//   MLGO_INLINER_TEMPERATURE  0 or unset: greedy; otherwise decisions are sampled from logits / temperature
//   MLGO_INLINER_SEED         seed of sampling; the same seed gives the same decisions
//   MLGO_INLINER_LOG          file to write a training log to; the functions' names go to FILE.functions
//   MLGO_INLINER_LOG_DEFAULT  1: also log the default decisions
//   MLGO_INLINER_THINLTO      1: also decide in the backends of a ThinLTO link, on functions imported from other modules,
//                             which policies are not trained on
//   MLGO_INLINER_STRICT       1: fail the compilation if these settings cannot be followed; otherwise it continues without
//                             the policy, with a warning
//
// The log has the format of LLVM's TrainingLogger (see llvm/training_log.py). After LLVM's features come
// `inlining_default` (if known), `inlining_decision`, `caller` and `callee` (indices into the names, which are
// NUL-separated), `inlined` (whether the call was inlined in the end), and `logits` (mode `policy`).

#include "inline_advisor.h"
#include "plugin_environment.h"
#include "policy_network.h"

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace llvm;
using compiler_opt::isSet;
using compiler_opt::offeredFeatures;
using compiler_opt::variable;

constexpr size_t kNumActions = 2;
constexpr size_t kFlushBytes = size_t(1) << 20;

bool isIntegerScalar(const TensorSpec &Spec) { return Spec.isElementType<int64_t>() && Spec.getElementCount() == 1; }

void complain(const std::string &Message, const char *Consequence) {
  compiler_opt::complain(Message, Consequence, "MLGO_INLINER_STRICT");
}

std::string quoted(StringRef Text) {
  std::string Result;
  raw_string_ostream Stream(Result);
  Stream << json::Value(json::fixUTF8(Text));
  return Result;
}

// --- The log ---------------------------------------------------------------------------------------------------------

// The two files of a log; shared by the modules of one process, which a linker may compile in parallel.
class LogFiles {
public:
  LogFiles(std::string Path, bool HasDefault, bool HasLogits)
      : HasDefault(HasDefault), HasLogits(HasLogits), Path(std::move(Path)) {}

  const bool HasDefault;
  const bool HasLogits;

  int64_t nameIndex(const Function &F) {
    // Functions come and go, and with them their addresses; a name stays what it was when the decision was taken.
    const std::lock_guard<std::mutex> Lock(Mutex);
    const StringRef Name = GlobalValue::dropLLVMManglingEscape(F.getName());
    const auto [Position, IsNew] = Indices.try_emplace(Name, int64_t(Indices.size()));
    if (IsNew) {
      NewNames.append(Name.data(), Name.size());
      NewNames.push_back('\0');
    }
    return Position->second;
  }

  // Appends whole records of one module.
  void append(const std::string &Context, const std::string &Records) {
    const std::lock_guard<std::mutex> Lock(Mutex);
    if (Failed)
      return;
    std::string Text;
    if (Log < 0) {
      Text = header();
      Log = open(Path);
      Names = open(Path + ".functions");
    }
    if (Context != CurrentContext) {
      CurrentContext = Context;
      Text += "{\"context\":" + quoted(Context) + "}\n";
    }
    // The names first: a record is of no use without them.
    write(Names, NewNames);
    write(Log, Text);
    write(Log, Records);
    NewNames.clear();
  }

private:
  std::string header() const {
    std::string Text = "{\"features\":[";
    const auto Add = [&Text](const std::string &Name, const char *Type, size_t Extent) {
      Text += "{\"name\":" + quoted(Name) + ",\"type\":\"" + Type + "\",\"port\":0,\"shape\":[" +
              std::to_string(Extent) + "]}";
    };
    for (const TensorSpec &Spec : offeredFeatures()) {
      Add(Spec.name(), "int64_t", 1);
      Text += ',';
    }
    if (HasDefault) {
      Add(DefaultDecisionName, "int64_t", 1);
      Text += ',';
    }
    for (const char *Name : {DecisionName, "caller", "callee"}) {
      Add(Name, "int64_t", 1);
      Text += ',';
    }
    Add("inlined", "int64_t", 1);
    if (HasLogits) {
      Text += ',';
      Add("logits", "float", kNumActions);
    }
    Text += "],\"advice\":";
    Add(DecisionName, "int64_t", 1);
    return Text + "}\n";
  }

  int open(const std::string &Name) {
    const int Descriptor = ::open(Name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (Descriptor < 0)
      fail(Name);
    return Descriptor;
  }

  void write(int Descriptor, const std::string &Text) {
    size_t Done = 0;
    while (Done < Text.size() && !Failed) {
      const ssize_t Written = ::write(Descriptor, Text.data() + Done, Text.size() - Done);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        return fail(Path);
      Done += size_t(Written);
    }
  }

  void fail(const std::string &Name) {
    const std::string Reason = std::strerror(errno);
    if (!Failed)
      complain("cannot write the log " + Name + ": " + Reason, "going on without it");
    Failed = true;
  }

  const std::string Path;
  std::mutex Mutex;
  bool Failed = false;
  int Log = -1, Names = -1;
  std::optional<std::string> CurrentContext;
  std::string NewNames;
  StringMap<int64_t> Indices;
};

// The records of one module.
class ModuleLog {
public:
  ModuleLog(LogFiles &Files, std::string Context) : Files(Files), Context(std::move(Context)) {}

  ModuleLog(const ModuleLog &) = delete;

  ~ModuleLog() {
    if (!Records.empty())
      Files.append(Context, Records);
  }

  void add(const CallBase &CB, const std::vector<int64_t> &Observation, bool Default, bool Decision,
           const float *Logits) {
    if (Records.size() > kFlushBytes) {
      Files.append(Context, Records);
      Records.clear();
    }
    Records += "{\"observation\":";
    Records += std::to_string(NumObservations++);
    Records += "}\n";
    add(Observation.data(), offeredFeatures().size());
    if (Files.HasDefault)
      add(int64_t(Default));
    add(int64_t(Decision));
    add(Files.nameIndex(*CB.getCaller()));
    add(Files.nameIndex(*CB.getCalledFunction()));
    Inlined = Records.size();
    add(int64_t(0));
    if (Files.HasLogits)
      add(Logits, kNumActions);
    Records += '\n';
  }

  // The call decided on last was inlined; the inliner tells so before it asks again.
  void recordInlined() {
    const int64_t Yes = 1;
    std::memcpy(&Records[Inlined], &Yes, sizeof Yes);
  }

private:
  template <typename T> void add(const T *Values, size_t Count) {
    Records.append(reinterpret_cast<const char *>(Values), Count * sizeof(T));
  }
  void add(int64_t Value) { add(&Value, 1); }

  LogFiles &Files;
  const std::string Context;
  std::string Records;
  size_t Inlined = 0;
  uint64_t NumObservations = 0;
};

// --- What the environment asks for -----------------------------------------------------------------------------------

enum class Decider { Policy, Compiler };

// Read once; never changes afterwards.
struct Settings {
  Decider By = Decider::Policy;
  compiler_opt::PolicyNetwork Network;
  std::vector<size_t> Columns; // of the policy's features among those offered
  double Temperature = 0;
  uint64_t Seed = 0;
  std::unique_ptr<LogFiles> Log;

  // Returns what is wrong, or nothing.
  std::string read() {
    const char *Mode = variable("MLGO_INLINER_MODE");
    if (Mode && std::strcmp(Mode, "default") == 0)
      By = Decider::Compiler;
    else if (Mode && std::strcmp(Mode, "policy") != 0)
      return std::string("MLGO_INLINER_MODE: expected policy or default, found ") + Mode;
    char *End = nullptr;
    if (const char *Text = variable("MLGO_INLINER_TEMPERATURE")) {
      Temperature = std::strtod(Text, &End);
      if (*End || !(Temperature >= 0) || std::isinf(Temperature))
        return std::string("MLGO_INLINER_TEMPERATURE: expected a number of at least 0, found ") + Text;
    }
    if (const char *Text = variable("MLGO_INLINER_SEED")) {
      errno = 0;
      Seed = std::strtoull(Text, &End, 10);
      if (*End || *Text == '-' || errno)
        return std::string("MLGO_INLINER_SEED: expected a number from 0 to 2^64 - 1, found ") + Text;
    }
    for (const TensorSpec &Spec : offeredFeatures())
      if (!isIntegerScalar(Spec))
        return "this LLVM's feature " + Spec.name() + " is no integer";
    if (By == Decider::Policy) {
      std::string Wrong = readPolicy();
      if (!Wrong.empty())
        return Wrong;
    }
    if (const char *Path = variable("MLGO_INLINER_LOG")) {
      const bool ByPolicy = By == Decider::Policy;
      Log = std::make_unique<LogFiles>(Path, !ByPolicy || isSet("MLGO_INLINER_LOG_DEFAULT"), ByPolicy);
    }
    return "";
  }

private:
  std::string readPolicy() {
    const compiler_opt::PolicyBytes Bytes = compiler_opt::PolicyBytes::find("MLGO_INLINER_POLICY");
    const std::string &Origin = Bytes.Origin;
    if (!Bytes.Wrong.empty())
      return Origin + ": " + Bytes.Wrong;
    if (!Bytes.Blob)
      return "no policy: none is built in, and MLGO_INLINER_POLICY names none";
    if (const char *Wrong = Network.load(Bytes.Blob, Bytes.Size))
      return Origin + ": " + Wrong;
    if (Network.num_actions() != kNumActions)
      return Origin + ": expected " + std::to_string(kNumActions) + " actions, found " +
             std::to_string(Network.num_actions());
    const std::vector<TensorSpec> &Offered = offeredFeatures();
    for (size_t Index = 0; Index < Network.num_features(); ++Index) {
      const std::string Name = Network.feature_name(Index);
      size_t Column = 0;
      while (Column < Offered.size() && Offered[Column].name() != Name)
        ++Column;
      if (Column == Offered.size())
        return Origin + ": needs the feature " + Name + ", which LLVM " LLVM_VERSION_STRING " does not compute";
      Columns.push_back(Column);
    }
    return "";
  }
};

// What to do, or null when it cannot be done; that is said once.
Settings *settings() {
  static Settings *const Result = [] {
    auto Read = std::make_unique<Settings>();
    const std::string Wrong = Read->read();
    if (Wrong.empty())
      // Lives as long as the process: threads of a linker may still compile when static objects are destroyed.
      return Read.release();
    complain(Wrong, "compiling with the default heuristic");
    return static_cast<Settings *>(nullptr);
  }();
  return Result;
}

// --- The advisor -----------------------------------------------------------------------------------------------------

// Tells the log what became of a decision.
class LoggedAdvice final : public compiler_opt::TrackedAdvice {
public:
  LoggedAdvice(compiler_opt::FeatureAdvisor *Advisor, CallBase &CB, OptimizationRemarkEmitter &ORE,
               bool Recommendation, ModuleLog &Log)
      : TrackedAdvice(Advisor, CB, ORE, Recommendation), Log(Log) {}

private:
  void recordInliningImpl() override {
    Log.recordInlined();
    TrackedAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    Log.recordInlined();
    TrackedAdvice::recordInliningWithCalleeDeletedImpl();
  }

  ModuleLog &Log;
};

// What the compiler itself would decide.
std::function<bool(CallBase &)> compilersDecision(Module &M, FunctionAnalysisManager &FAM, const InlineParams &Params,
                                                  const InlineContext &Context) {
  auto Advisor = std::make_shared<DefaultInlineAdvisor>(M, FAM, Params, Context);
  return [Advisor](CallBase &CB) {
    const std::unique_ptr<InlineAdvice> Advice = Advisor->getAdvice(CB);
    // Advice must be told what became of it; this one is not followed.
    Advice->recordUnattemptedInlining();
    return Advice->isInliningRecommended();
  };
}

class PolicyAdvisor final : public compiler_opt::FeatureAdvisor {
public:
  PolicyAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM, DefaultDecision Default,
                const Settings &Asked)
      : FeatureAdvisor(M, MAM, FAM, std::move(Default)), Asked(Asked), Inputs(Asked.Columns.size()),
        Random(Asked.Seed) {
    if (Asked.Log)
      Log.emplace(*Asked.Log, M.getModuleIdentifier());
  }

private:
  std::unique_ptr<InlineAdvice> decide(CallBase &CB, OptimizationRemarkEmitter &ORE) override {
    const bool ByPolicy = Asked.By == Decider::Policy;
    float Logits[kNumActions] = {0, 0};
    const bool DefaultDecision = !ByPolicy || (Log && Asked.Log->HasDefault) ? Default(CB) : false;
    const bool Decision = ByPolicy ? decideByPolicy(Logits) : DefaultDecision;
    if (!Log)
      return std::make_unique<compiler_opt::TrackedAdvice>(this, CB, ORE, Decision);
    Log->add(CB, Features, DefaultDecision, Decision, Logits);
    return std::make_unique<LoggedAdvice>(this, CB, ORE, Decision, *Log);
  }

  bool decideByPolicy(float *Logits) {
    for (size_t Index = 0; Index < Inputs.size(); ++Index)
      Inputs[Index] = Features[Asked.Columns[Index]];
    Asked.Network.logits(Inputs.data(), Logits);
    if (Asked.Temperature == 0)
      return Logits[1] > Logits[0];
    // As policies/weights.py has it, to the last bit.
    const double Scaled = (double(Logits[1]) - double(Logits[0])) / Asked.Temperature;
    const double Probability = Scaled > -700 ? 1 / (1 + std::exp(-Scaled)) : 0;
    return Random.uniform() < Probability;
  }

  const Settings &Asked;
  std::vector<int64_t> Inputs; // in the policy's order
  compiler_opt::SplitMix64 Random;
  std::optional<ModuleLog> Log;
};

// An advisor is made from the function analyses alone, but ours wants the call graph too: the module's are noted when the
// compiler looks for the factory, which it does in the same thread just before.
struct ModuleInProgress {
  const Module *M = nullptr;
  ModuleAnalysisManager *MAM = nullptr;
};
thread_local ModuleInProgress InProgress;

// The inliners that prepare for instrumentation, or that go by module instead of call graph, are not what was learnt; nor
// are ThinLTO's backends, where clang >= 23 loads plugins as linkers do.
bool isOurs(const InlineContext &Context) {
  return Context.Pass == InlinePass::CGSCCInliner &&
         (Context.LTOPhase != ThinOrFullLTOPhase::ThinLTOPostLink || isSet("MLGO_INLINER_THINLTO"));
}

InlineAdvisor *makeAdvisor(Module &M, FunctionAnalysisManager &FAM, InlineParams Params, InlineContext Context) {
  Settings *const Asked = settings();
  if (!Asked || !isOurs(Context))
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  if (InProgress.M != &M) {
    complain(M.getModuleIdentifier() + ": this LLVM does not tell which module it inlines in",
             "compiling with the default heuristic");
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  }
  return new PolicyAdvisor(M, *InProgress.MAM, FAM, compilersDecision(M, FAM, Params, Context), *Asked);
}

// Takes the place of PluginInlineAdvisorAnalysis, by its key.
class AdvisorAnalysis {
public:
  using Result = PluginInlineAdvisorAnalysis::Result;

  static AnalysisKey *ID() { return PluginInlineAdvisorAnalysis::ID(); }
  static StringRef name() { return "mlgo-inliner"; }

  Result run(Module &M, ModuleAnalysisManager &MAM) {
    InProgress = {&M, &MAM};
    return {makeAdvisor};
  }
};

void registerModuleAnalyses(ModuleAnalysisManager &MAM) {
  // Without anything to do the compiler is left as it is.
  if (!settings())
    return;
  // Older versions only look for plugins once one of these has been made; linkers come by here in several threads.
  static std::once_flag IsMade;
  std::call_once(IsMade, [] { (void)PluginInlineAdvisorAnalysis(makeAdvisor); });
  MAM.registerPass([] { return AdvisorAnalysis(); });
}

void registerFunctionAnalyses(FunctionAnalysisManager &FAM) {
  FAM.registerPass([] { return compiler_opt::BodyAnalysis(); });
}

void registerCallbacks(PassBuilder &PB) {
  const std::string Wrong = compiler_opt::wrongVersion();
  if (!Wrong.empty())
    return complain(Wrong, "compiling with the default heuristic");
  PB.registerAnalysisRegistrationCallback(registerModuleAnalyses);
  PB.registerAnalysisRegistrationCallback(registerFunctionAnalyses);
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  PassPluginLibraryInfo Info{};
  Info.APIVersion = LLVM_PLUGIN_API_VERSION;
  Info.PluginName = "mlgo-inliner";
  Info.PluginVersion = LLVM_VERSION_STRING;
  Info.RegisterPassBuilderCallbacks = registerCallbacks;
  return Info;
}
