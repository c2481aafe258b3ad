// A pass plugin for the register allocator of an unmodified clang. It makes decisions by a trained policy, or sends the
// default decision over a channel, together with the features that LLVM's ML advisors compute.
//
// The options `-regalloc-enable-advisor=release -regalloc-evict-interactive-channel-base=BASE` (or those for
// priorities) make LLVM query its ML advisor over an interactive channel. This channel remains unused: BASE.in and
// BASE.out are links to /dev/null. With a policy, the plugin sets these options itself unless the command line has
// them; BASE is then `mlgo-nowhere` beside this library. The plugin
//
// - wraps that advisor, to query LLVM's default advisor about the same live interval first (regalloc_wrappers.h);
// - replaces `InteractiveModelRunner::evaluateUntyped`, which the ML advisor calls for a decision (model_runner.h).
//
// It is configured by environment variables:
//
//   MLGO_REGALLOC_CHANNEL  BASE: a channel over BASE.in and BASE.out like LLVM's, with one more feature, the default
//                          decision: `eviction_default` (int64) or `priority_default` (float)
//   MLGO_REGALLOC_MODE     `policy` (the default), or `default` for the compiler's default decisions
//   MLGO_REGALLOC_LEVELS   optimisation levels to decide at, such as O2,O3; by default all, as in the linker
//   MLGO_REGALLOC_POLICY   file of a native policy; by default the policy that is built in. Without either, the default
//                          advisor decides (under MLGO_REGALLOC_STRICT, that is an error)
//   MLGO_REGALLOC_LOG      file to write a training log to: the features, the default decision, and the decision
//   MLGO_REGALLOC_STRICT   1: fail the compilation if these settings cannot be followed; otherwise it continues without
//                          the policy, with a warning
//   MLGO_LLVM_VERSION      the only version of LLVM to decide in, such as 22.1.2; by default any of this major version
//
// A decision that equals the default gives exactly the default advisor's result, whatever candidates the ML advisor
// considers and despite rounding to float. Answering every query with the default decision therefore reproduces the
// object of a plain compilation.
//
// A linker generates code in several threads at once (`lld --lto-partitions`, ThinLTO). The settings are read once and
// never change; all other state belongs to one code generator (`RegallocDecider`) or to the current query of a thread
// (`CurrentQuery`). A log or a channel supports one code generator only; a second one is an error.

#include "model_runner.h"
#include "plugin_environment.h"
#include "regalloc_advisors.h"
#include "regalloc_decider.h"
#include "regalloc_wrappers.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"

#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>

namespace {

using namespace llvm;
using compiler_opt::CurrentQuery;
using compiler_opt::LoadedPolicy;
using compiler_opt::ModelRunner;
using compiler_opt::RegallocDecider;
using compiler_opt::useDefaultHeuristic;
using compiler_opt::variable;

constexpr char EvictionChannel[] = "regalloc-evict-interactive-channel-base";
constexpr char PriorityChannel[] = "regalloc-priority-interactive-channel-base";

RegallocDecider &currentDecider() {
  if (!CurrentQuery.Decider)
    compiler_opt::fail("LLVM queries a model outside of the register allocator's advisors; do not use the inliner's "
                       "channel and the register-allocation plugin in the same compilation");
  return *CurrentQuery.Decider;
}

void switchContext(ModelRunner *, StringRef Name) { currentDecider().switchContext(Name); }

void *evaluate(ModelRunner *Model) { return currentDecider().decide(*Model); }

cl::Option *findOption(StringRef Name) {
  const auto Options = cl::getRegisteredOptions();
  const auto Found = Options.find(Name);
  return Found == Options.end() ? nullptr : Found->second;
}

bool isOnCommandLine(StringRef Name) {
  const cl::Option *Option = findOption(Name);
  return Option && Option->getNumOccurrences() != 0;
}

// Base name of the links to /dev/null beside this library; empty if they are missing.
std::string nullChannelBase() {
  Dl_info Info;
  if (dladdr(reinterpret_cast<void *>(evaluate), &Info) == 0 || Info.dli_fname == nullptr)
    return "";
  const std::string Library = Info.dli_fname;
  const std::string Base = Library.substr(0, Library.rfind('/') + 1) + "mlgo-nowhere";
  return access((Base + ".in").c_str(), R_OK) == 0 && access((Base + ".out").c_str(), W_OK) == 0 ? Base : "";
}

// Sets the options that make LLVM query the ML advisor of a policy's problem, unless the command line has them. Returns
// an error message, or an empty string on success.
std::string enableMLAdvisor(const LoadedPolicy &Policy) {
  const bool IsEviction = Policy.Problem == "regalloc_eviction";
  cl::Option *Advisor = findOption(IsEviction ? "regalloc-enable-advisor" : "regalloc-enable-priority-advisor");
  const char *Channel = IsEviction ? EvictionChannel : PriorityChannel;
  if (isOnCommandLine(Channel))
    return "";
  if (!Advisor || !findOption(Channel))
    return "this LLVM has no ML advisor for " + Policy.Problem;
  if (Advisor->getNumOccurrences() != 0)
    return "the command line already sets -" + Advisor->ArgStr.str();
  const std::string Base = nullChannelBase();
  if (Base.empty())
    return "mlgo-nowhere.in and mlgo-nowhere.out, links to /dev/null, are missing beside the plugin";
  if (Advisor->addOccurrence(0, Advisor->ArgStr, "release") || findOption(Channel)->addOccurrence(0, Channel, Base))
    return "this LLVM does not accept the options of its ML advisor";
  return "";
}

// Reads the settings and the policy, and makes LLVM use our advisors.
void setUp() {
  std::string Error = compiler_opt::versionMismatch();
  if (!Error.empty())
    return useDefaultHeuristic(Error);
  std::unique_ptr<LoadedPolicy> Policy;
  const char *Mode = variable("MLGO_REGALLOC_MODE");
  const bool IsDefaultMode = Mode && std::strcmp(Mode, "default") == 0;
  if (Mode && !IsDefaultMode && std::strcmp(Mode, "policy") != 0) {
    Error = std::string("MLGO_REGALLOC_MODE: expected policy or default, found ") + Mode;
  } else if (!variable("MLGO_REGALLOC_CHANNEL") && !IsDefaultMode) {
    Policy = LoadedPolicy::read(Error);
    if (!Policy && Error.empty() && compiler_opt::isSet("MLGO_REGALLOC_STRICT"))
      Error = "no policy: none is built in, and MLGO_REGALLOC_POLICY names none";
  }
  if (Policy)
    Error = enableMLAdvisor(*Policy);
  if (!Error.empty()) {
    useDefaultHeuristic(Error);
    Policy.reset();
  }
  // If the command line names LLVM's channel, the model runner must be replaced even without a policy: LLVM would wait
  // for ever on a channel that nobody serves.
  if (!isOnCommandLine(EvictionChannel) && !isOnCommandLine(PriorityChannel)) {
    if (variable("MLGO_REGALLOC_CHANNEL") || variable("MLGO_REGALLOC_LOG"))
      useDefaultHeuristic("the channel or log cannot be used: the command line does not enable an ML advisor of the "
                          "register allocator");
    return;
  }
  compiler_opt::ProcessPolicy = Policy.release(); // never freed
  // Both advisors use the same class of model runner.
  compiler_opt::replaceModelRunner(evaluate, switchContext);
  if (isOnCommandLine(EvictionChannel))
    compiler_opt::replaceAnalysis<compiler_opt::EvictionAnalysis, compiler_opt::EvictionAnalysisWrapper>(
        compiler_opt::initializeEvictionAnalysis, compiler_opt::OriginalEvictionConstructor);
  if (isOnCommandLine(PriorityChannel))
    compiler_opt::replaceAnalysis<compiler_opt::PriorityAnalysis, compiler_opt::PriorityAnalysisWrapper>(
        compiler_opt::initializePriorityAnalysis, compiler_opt::OriginalPriorityConstructor);
}

void setUpOnce() {
  static std::once_flag IsSetUp;
  std::call_once(IsSetUp, setUp);
}

// Called before code is generated. A linker builds pass pipelines in several threads.
void registerCallbacks(PassBuilder &PB) {
  const compiler_opt::Levels DecidesAt("MLGO_REGALLOC_LEVELS");
  if (DecidesAt.isEverywhere())
    return setUpOnce();
  PB.registerPipelineStartEPCallback([DecidesAt](ModulePassManager &, OptimizationLevel Level) {
    if (DecidesAt.contains(Level))
      setUpOnce();
  });
  PB.registerFullLinkTimeOptimizationEarlyEPCallback([](ModulePassManager &, OptimizationLevel) { setUpOnce(); });
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-regalloc", LLVM_VERSION_STRING, registerCallbacks};
}
