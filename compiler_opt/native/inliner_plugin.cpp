// A pass plugin that makes inlining decisions inside an unmodified clang, opt or ld.lld.
//
// Its features are those of LLVM's MLInlineAdvisor (see inline_advisor.h) and, for policies and logs that name them,
// those of callsite_features.h. The plugin is built once for each version of LLVM (see llvm/plugin.py) and configured by
// environment variables:
//
//   MLGO_INLINER_MODE         `policy` (the default), or `default` for the compiler's default decisions
//   MLGO_INLINER_LEVELS       optimisation levels to decide at, such as Oz,Os: those of the pipeline or, when the whole
//                             program is linked, of each caller; by default all
//   MLGO_INLINER_POLICY       file of a native policy; by default the policy that is built in, if any
//   MLGO_INLINER_TEMPERATURE  0 or unset: greedy; otherwise decisions are sampled from logits / temperature
//   MLGO_INLINER_SEED         seed of sampling; the same seed gives the same decisions
//   MLGO_INLINER_DECISIONS    file of decisions to replay, made for this LLVM and this policy (or the default): where a
//                             call site matches, they come before the policy (see decision_replay.h)
//   MLGO_INLINER_LOG          file to write a training log to (see inliner_log.h); function names go to FILE.functions
//   MLGO_INLINER_LOG_DEFAULT  1: also log the default decisions
//   MLGO_INLINER_LOG_FEATURES names of features of callsite_features.h to log as well, separated by commas
//   MLGO_INLINER_DIFFERENCES  file to append the decisions to that differ from the default (see difference_log.h)
//   MLGO_INLINER_FUNCTIONS    file to write the features of functions right after inlining to (see function_counter.h)
//   MLGO_INLINER_THINLTO      1: also decide in the backends of a ThinLTO link, on functions imported from other modules,
//                             which policies are not trained on
//   MLGO_INLINER_STRICT       1: fail the compilation if these settings cannot be followed; otherwise it continues
//                             without the policy, with a warning
//   MLGO_LLVM_VERSION         decide in this version of LLVM only, such as 22.1.2, not in all of its major version

#include "decision_replay.h"
#include "difference_log.h"
#include "function_counter.h"
#include "inline_advisor.h"
#include "inliner_log.h"
#include "inliner_settings.h"
#include "plugin_environment.h"
#include "policy_network.h"

#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace llvm;
using compiler_opt::DifferenceLog;
using compiler_opt::InlinerMode;
using compiler_opt::InlinerSettings;
using compiler_opt::inlinerSettings;
using compiler_opt::kNumActions;
using compiler_opt::ModuleLog;

void useDefaultHeuristic(const std::string &Reason) {
  compiler_opt::warnOrFail(Reason, "compiling with the default heuristic", "MLGO_INLINER_STRICT");
}

// Records in the logs, if any, whether its call was inlined.
class LoggedAdvice final : public compiler_opt::TrackedAdvice {
public:
  LoggedAdvice(compiler_opt::FeatureAdvisor *Advisor, CallBase &CB, OptimizationRemarkEmitter &ORE,
               bool Recommendation, std::optional<ModuleLog> &Log, std::optional<DifferenceLog> &Differences)
      : TrackedAdvice(Advisor, CB, ORE, Recommendation), Log(Log), Differences(Differences) {}

private:
  void recordInliningImpl() override {
    recordInlined();
    TrackedAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    recordInlined();
    TrackedAdvice::recordInliningWithCalleeDeletedImpl();
  }

  void recordInlined() {
    if (Log)
      Log->recordInlined();
    if (Differences)
      Differences->recordInlined();
  }

  std::optional<ModuleLog> &Log;
  std::optional<DifferenceLog> &Differences;
};

// Returns a function that queries LLVM's default heuristic.
std::function<std::unique_ptr<InlineAdvice>(CallBase &)> defaultHeuristic(Module &M, FunctionAnalysisManager &FAM,
                                                                          const InlineParams &Params,
                                                                          const InlineContext &Context) {
  auto Advisor = std::make_shared<DefaultInlineAdvisor>(M, FAM, Params, Context);
  return [Advisor](CallBase &CB) { return Advisor->getAdvice(CB); };
}

class PolicyAdvisor final : public compiler_opt::FeatureAdvisor {
public:
  // If `IsProgram`, the module has functions that were compiled at several levels.
  PolicyAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM, DefaultAdvice Default,
                const InlinerSettings &Settings, bool IsProgram)
      : FeatureAdvisor(M, MAM, FAM, std::move(Default)), Settings(Settings), IsProgram(IsProgram),
        Inputs(Settings.Columns.size()), Random(Settings.Seed) {
    if (Settings.Log)
      Log.emplace(*Settings.Log, M.getModuleIdentifier());
    if (!Settings.Differences.empty())
      Differences.emplace(Settings.Differences, M.getModuleIdentifier());
    if (Settings.Log || Settings.Decisions)
      Bodies.emplace(M, [&](StringRef Name) {
        return Settings.Log || compiler_opt::DecisionReplay::concerns(*Settings.Decisions, Name);
      });
    if (Settings.Decisions)
      Replay.emplace(*Settings.Decisions, *Bodies);
  }

private:
  std::unique_ptr<InlineAdvice> decide(CallBase &CB, OptimizationRemarkEmitter &ORE) override {
    if (IsProgram && !decidesIn(*CB.getCaller()))
      return std::make_unique<compiler_opt::TrackedAdvice>(this, CB, ORE, defaultDecision(CB));
    const std::optional<bool> Replayed = Replay ? Replay->next(CB) : std::nullopt;
    const bool IsLogged = Log || Differences;
    const bool HasPolicy = Settings.Mode == InlinerMode::Policy;
    // A recurrent policy remembers what it saw in decisions that are not its own, too.
    if (Replayed && !IsLogged && !(HasPolicy && Settings.Network.is_recurrent()))
      return std::make_unique<compiler_opt::TrackedAdvice>(this, CB, ORE, withinLimit(*Replayed, CB));
    float Logits[kNumActions] = {0, 0};
    const bool NeedsDefault =
        !HasPolicy || Settings.NeedsDefaultFeature || Differences || (Log && Settings.Log->HasDefault);
    const bool DefaultDecision = NeedsDefault && defaultDecision(CB);
    int64_t *const Own = &Features[compiler_opt::llvmFeatures().size()];
    if (Settings.NeedsCallSiteFeatures)
      compiler_opt::setCallSiteFeatures(CB, countsOf(*CB.getCaller()).Counts,
                                        countsOf(*CB.getCalledFunction()).Counts, callCosts(CB), Own);
    if (Settings.NeedsHotness)
      // LLVM computes the frequencies, too, before it inlines the first call of this caller, and then maintains them.
      compiler_opt::setHotness(CB, FAM.getResult<BlockFrequencyAnalysis>(*CB.getCaller()), PSI, Own);
    Features.back() = DefaultDecision;
    const bool Unreplayed = HasPolicy ? decideByPolicy(CB, Logits) : DefaultDecision;
    const bool Decision = HasPolicy || Replayed ? withinLimit(Replayed.value_or(Unreplayed), CB) : DefaultDecision;
    if (!IsLogged)
      return std::make_unique<compiler_opt::TrackedAdvice>(this, CB, ORE, Decision);
    if (Log)
      Log->add(CB, Features, Bodies->of(*CB.getCaller()), DefaultDecision, Decision, Replayed.has_value(), Logits);
    if (Differences)
      Differences->add(CB, Decision, DefaultDecision, Replayed.has_value());
    return std::make_unique<LoggedAdvice>(this, CB, ORE, Decision, Log, Differences);
  }

  // A decision to inline, or the default's if the caller's frame would get too large.
  bool withinLimit(bool Decision, CallBase &CB) {
    return Decision && exceedsFrameLimit(CB) ? defaultDecision(CB) : Decision;
  }

  // The linker's own level says nothing about size, but functions that were compiled for it are marked.
  bool decidesIn(const Function &F) const {
    return F.hasMinSize()   ? Settings.DecidesAt.contains("Oz")
           : F.hasOptSize() ? Settings.DecidesAt.contains("Os")
                            : Settings.DecidesAt.contains("O2") || Settings.DecidesAt.contains("O3");
  }

  bool decideByPolicy(CallBase &CB, float *Logits) {
    for (size_t Index = 0; Index < Inputs.size(); ++Index)
      Inputs[Index] = Features[Settings.Columns[Index]];
    Settings.Network.logits(Inputs.data(), Logits, Memory);
    // The same formulas as in spaces/binary.py, bit for bit.
    const double Difference = double(Logits[1]) - double(Logits[0]);
    if (Settings.Temperature == 0)
      return std::abs(Difference) < Settings.Network.margin() ? defaultDecision(CB) : Difference > 0;
    const double Scaled = Difference / Settings.Temperature;
    const double Probability = Scaled > -700 ? 1 / (1 + std::exp(-Scaled)) : 0;
    return Random.uniform() < Probability;
  }

  const InlinerSettings &Settings;
  const bool IsProgram;
  std::vector<int64_t> Inputs; // the policy's features, in its order
  compiler_opt::PolicyNetwork::State Memory; // of the module's decisions so far
  compiler_opt::SplitMix64 Random;
  std::optional<ModuleLog> Log;
  std::optional<DifferenceLog> Differences;
  std::optional<compiler_opt::BodyFingerprints> Bodies; // if they are logged or looked up
  std::optional<compiler_opt::DecisionReplay> Replay;
};

// The analyses of the module that this thread compiles. LLVM passes the function analyses alone to the factory of
// advisors, but PolicyAdvisor also needs the call graph. So AdvisorAnalysis, which LLVM runs in the same thread just
// before it calls the factory, leaves the module analyses here.
struct ModuleContext {
  const Module *M = nullptr;
  ModuleAnalysisManager *MAM = nullptr;
  std::optional<OptimizationLevel> Level; // of the pipeline, if it has one
};
thread_local ModuleContext CurrentModule;

// Whether this is the inliner that policies are trained for: the CGSCC inliner, not the module inliner or the one that
// runs before instrumentation. Backends of ThinLTO, where clang >= 23 loads plugins as linkers do, must be enabled.
bool isSupported(const InlineContext &Context) {
  return Context.Pass == InlinePass::CGSCCInliner &&
         (Context.LTOPhase != ThinOrFullLTOPhase::ThinLTOPostLink || compiler_opt::isSet("MLGO_INLINER_THINLTO"));
}

InlineAdvisor *makeAdvisor(Module &M, FunctionAnalysisManager &FAM, InlineParams Params, InlineContext Context) {
  const InlinerSettings *const Settings = inlinerSettings();
  const bool IsProgram = Context.LTOPhase == ThinOrFullLTOPhase::FullLTOPostLink;
  const std::optional<OptimizationLevel> Level = CurrentModule.Level;
  if (!Settings || !isSupported(Context) || (!IsProgram && Level && !Settings->DecidesAt.contains(*Level)))
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  if (CurrentModule.M != &M) {
    useDefaultHeuristic(M.getModuleIdentifier() + ": this LLVM does not say which module it inlines in");
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  }
  return new PolicyAdvisor(M, *CurrentModule.MAM, FAM, defaultHeuristic(M, FAM, Params, Context), *Settings,
                           IsProgram);
}

// The level of a pass builder's pipeline, once that is built.
using PipelineLevel = std::shared_ptr<std::optional<OptimizationLevel>>;

// Replaces PluginInlineAdvisorAnalysis, under the same key.
class AdvisorAnalysis {
public:
  using Result = PluginInlineAdvisorAnalysis::Result;

  explicit AdvisorAnalysis(PipelineLevel Level) : Level(std::move(Level)) {}

  static AnalysisKey *ID() { return PluginInlineAdvisorAnalysis::ID(); }
  static StringRef name() { return "mlgo-inliner"; }

  Result run(Module &M, ModuleAnalysisManager &MAM) {
    CurrentModule = {&M, &MAM, *Level};
    return {makeAdvisor};
  }

private:
  PipelineLevel Level;
};

void registerModuleAnalyses(ModuleAnalysisManager &MAM, const PipelineLevel &Level) {
  // With invalid settings, the compiler remains unchanged.
  if (!inlinerSettings())
    return;
  // Older versions only look for the analysis after an instance of it was constructed. Linkers call this function in
  // several threads.
  static std::once_flag IsConstructed;
  std::call_once(IsConstructed, [] { (void)PluginInlineAdvisorAnalysis(makeAdvisor); });
  MAM.registerPass([&] { return AdvisorAnalysis(Level); });
}

void registerFunctionAnalyses(FunctionAnalysisManager &FAM) {
  FAM.registerPass([] { return compiler_opt::FunctionBodyAnalysis(); });
}

void registerCallbacks(PassBuilder &PB) {
  const std::string Error = compiler_opt::versionMismatch();
  if (!Error.empty())
    return useDefaultHeuristic(Error);
  const auto Level = std::make_shared<std::optional<OptimizationLevel>>();
  PB.registerPipelineStartEPCallback([Level](ModulePassManager &, OptimizationLevel Found) { *Level = Found; });
  if (const char *Path = compiler_opt::variable("MLGO_INLINER_FUNCTIONS"))
    PB.registerOptimizerEarlyEPCallback([Path](ModulePassManager &Passes, OptimizationLevel Found, auto...) {
      if (Found != OptimizationLevel::O0)
        Passes.addPass(compiler_opt::FunctionCounter(Path));
    });
  PB.registerAnalysisRegistrationCallback([Level](ModuleAnalysisManager &MAM) { registerModuleAnalyses(MAM, Level); });
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
