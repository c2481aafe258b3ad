// A pass plugin that sets options of LLVM's passes for single functions inside an unmodified clang.
//
// It is configured by environment variables (function_options.h describes the files):
//
//   MLGO_OPTIONS_MENU     file of sets of options; by default what is built in
//   MLGO_OPTIONS_CHOICES  file of functions and their sets, where there is such a menu
//   MLGO_OPTIONS_PLUGIN   a pass plugin of the user's own, whose options and passes the sets may name
//   MLGO_OPTIONS_TRIAL    a number such as 1.02: try all sets on each module, and take for all other functions the set with
//                         which they are smallest and execute at most so many times the instructions and calls of the
//                         first set, as the compiler estimates
//   MLGO_OPTIONS_DEFAULT  without trials, number of the set of all other functions; by default 0, the set outside of functions
//   MLGO_OPTIONS_LOG      file to write the functions of the module to, each as `BODY NAME`
//   MLGO_OPTIONS_COSTS    file to write to what functions cost in trials, each as `BYTES INSTRUCTIONS CALLS ... NAME` with
//                         three numbers for each set
//   MLGO_OPTIONS_STRICT   1: fail the compilation if these settings cannot be followed; otherwise it continues without
//                         any of these options, with a warning
//   MLGO_LLVM_VERSION     the only version of LLVM to set options in, such as 22.1.2; by default any of this major version
//
// The first set is in force when pipelines are built, in the optimiser, where a function's code becomes part of others, and
// outside of functions. The code generator of x86 takes one function after the other through all of its passes, and begins
// each with its dominator tree (a wrapper of that analysis notices, and runs the passes of the optimiser that the
// function's set has). It also asks for each optional pass of each function
// whether to run it. Where there is a pass over the module between (the machine outliner; other targets have such passes),
// what comes after it runs under the set of the last function.
//
// Options belong to the process, so only one thread may generate code: in a linker that has several, this is an error.

#include "function_options.h"
#include "plugin_environment.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/InitializePasses.h"
#include "llvm/Pass.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

// What is built into the plugin, if anything, in a generated source file.
extern "C" {
extern const char mlgo_options_menu[] __attribute__((weak));
extern const char mlgo_options_choices[] __attribute__((weak));
extern const char mlgo_options_trial[] __attribute__((weak));
extern const char mlgo_options_plugin[] __attribute__((weak));
}

namespace {

using namespace llvm;
using compiler_opt::FunctionCost;
using compiler_opt::FunctionCosts;
using compiler_opt::FunctionOptions;
using compiler_opt::variable;

// The options of the process, once they are set up; never freed.
FunctionOptions *Options = nullptr;
std::thread::id Owner;
double MaxInstructions = 0; // of what trials choose; 0 for no trials

FunctionOptions &options() {
  if (std::this_thread::get_id() != Owner)
    compiler_opt::fail("options of single functions need a process with one code generator, found several; use one "
                       "partition for link-time optimisation");
  return *Options;
}

// Asked by passes of the code generator; it asks LLVM's own gate, by which users look for a pass that is at fault.
class PassGate final : public OptPassGate {
public:
  static void install(LLVMContext &Context) {
    static PassGate Gate;
    if (&Context.getOptPassGate() == &Gate)
      return;
    Gate.Users = &Context.getOptPassGate();
    Context.setOptPassGate(Gate);
  }

  bool isEnabled() const override { return true; }

#if LLVM_VERSION_MAJOR >= 22
  bool shouldRunPass(StringRef Pass, StringRef IR) const override {
#else
  bool shouldRunPass(StringRef Pass, StringRef IR) override {
#endif
    if (options().skips(Pass))
      return false;
    // The users' counts the passes that it is asked about.
    return options().isTrying() || !Users->isEnabled() || Users->shouldRunPass(Pass, IR);
  }

private:
  OptPassGate *Users = nullptr;
};

// Writes a file, if an environment variable names one.
void writeLog(const char *Variable, StringRef Lines) {
  const char *const Path = variable(Variable);
  if (!Path)
    return;
  std::error_code Error;
  raw_fd_ostream Log(Path, Error);
  if (Error)
    compiler_opt::fail(std::string(Variable) + ": " + Path + ": " + Error.message());
  Log << Lines;
}

// The first pass of the pipeline.
class ModuleStart : public PassInfoMixin<ModuleStart> {
public:
  static bool isRequired() { return true; }

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    std::string Lines;
    options().start(M, [&](StringRef Name, uint64_t Body) {
      Lines += utohexstr(Body, /*LowerCase=*/true, /*Width=*/16) + " " + Name.str() + "\n";
    });
    writeLog("MLGO_OPTIONS_LOG", Lines);
    return PreservedAnalyses::all();
  }
};

// The code generator's first analysis of each function.
class DominatorTreeWrapper final : public DominatorTreeWrapperPass {
public:
  bool runOnFunction(Function &F) override {
    PassGate::install(F.getContext());
    if (MaxInstructions && options().beginTrials(*F.getParent()))
      tryOut(*F.getParent());
    options().enter(F);
    const bool Changed = options().prepare(F, [&]() -> TargetMachine & { return machine(); });
    return DominatorTreeWrapperPass::runOnFunction(F) || Changed;
  }

  bool doFinalization(Module &M) override {
    options().leave();
    return DominatorTreeWrapperPass::doFinalization(M);
  }

private:
  TargetMachine &machine() const {
    const auto *const Config = getAnalysisIfAvailable<TargetPassConfig>();
    if (!Config)
      compiler_opt::fail("options of functions: the code generator has no target machine");
    return Config->getTM<TargetMachine>();
  }

  void tryOut(const Module &M) {
    const compiler_opt::TrialModule Trial(M, machine());
    const auto Costs = options().tryOut(MaxInstructions, [&] { return Trial.measure(); });
    std::string Lines;
    for (const auto &First : Costs.front()) {
      for (const FunctionCosts &Each : Costs) {
        const FunctionCost Cost = Each.lookup(First.first());
        Lines += formatv("{0} {1:f3} {2:f3} ", Cost.Bytes, Cost.Instructions, Cost.Calls);
      }
      Lines += (First.first() + "\n").str();
    }
    writeLog("MLGO_OPTIONS_COSTS", Lines);
  }
};

PassInfo::NormalCtor_t OriginalLoopSimplify = nullptr, OriginalStackMapLiveness = nullptr;

// Loops are made canonical for their strength reduction only, so functions without that do without this, too.
class LoopSimplifyWrapper final : public FunctionPass {
public:
  LoopSimplifyWrapper() : FunctionPass(LoopSimplifyID), Original(OriginalLoopSimplify()) {}
  ~LoopSimplifyWrapper() override { Original->setResolver(nullptr); }

  StringRef getPassName() const override { return Original->getPassName(); }
  void getAnalysisUsage(AnalysisUsage &Usage) const override { Original->getAnalysisUsage(Usage); }

  bool runOnFunction(Function &F) override {
    if (options().skips(compiler_opt::kLoopReduction.Name))
      return false;
    if (!Original->getResolver())
      Original->setResolver(getResolver()); // of which the wrapper disposes
    return static_cast<FunctionPass &>(*Original).runOnFunction(F);
  }

private:
  const std::unique_ptr<Pass> Original;
};

// Makes the legacy pass manager construct a pass of ours in place of LLVM's; returns how it constructed that.
PassInfo::NormalCtor_t replacePass(const void *ID, PassInfo::NormalCtor_t Ours) {
  auto *const Info = const_cast<PassInfo *>(PassRegistry::getPassRegistry()->getPassInfo(ID));
  const PassInfo::NormalCtor_t Original = Info->getNormalCtor();
  Info->setNormalCtor(Ours);
  return Original;
}

// Reads what is built in or, if the environment names them, files.
std::string readOptions(FunctionOptions &Read) {
  const char *const MenuPath = variable("MLGO_OPTIONS_MENU"), *const ChoicesPath = variable("MLGO_OPTIONS_CHOICES");
  const char *Trial = variable("MLGO_OPTIONS_TRIAL");
  if (!Trial && !MenuPath && &mlgo_options_trial)
    Trial = mlgo_options_trial;
  if (Trial && (StringRef(Trial).getAsDouble(MaxInstructions) || !(MaxInstructions > 0)))
    return std::string("MLGO_OPTIONS_TRIAL: expected a number above 0, found ") + Trial;
  const char *Plugin = variable("MLGO_OPTIONS_PLUGIN");
  if (!Plugin && !MenuPath && &mlgo_options_plugin)
    Plugin = mlgo_options_plugin;
  if (Plugin)
    if (std::string Error = Read.load(Plugin); !Error.empty())
      return Error;
  if (!MenuPath && &mlgo_options_menu)
    return Read.read(mlgo_options_menu, mlgo_options_choices, 0);
  if (!MenuPath)
    return "no options: none are built in, and MLGO_OPTIONS_MENU names none";
  const char *const DefaultSet = variable("MLGO_OPTIONS_DEFAULT");
  size_t Number = 0;
  if (DefaultSet && StringRef(DefaultSet).getAsInteger(10, Number))
    return std::string("MLGO_OPTIONS_DEFAULT: expected the number of a set, found ") + DefaultSet;
  std::string Texts[2];
  for (const auto &[Path, Text] : {std::pair(MenuPath, &Texts[0]), std::pair(ChoicesPath, &Texts[1])}) {
    if (!Path)
      continue;
    auto Content = MemoryBuffer::getFile(Path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
    if (!Content)
      return std::string(Path) + ": " + Content.getError().message();
    *Text = (*Content)->getBuffer().str();
  }
  const std::string Error = Read.read(Texts[0], Texts[1], Number);
  return Error.empty() ? "" : std::string(MenuPath) + ": " + Error;
}

// Whether a user looks into LLVM, by options that print, count or stop, and would see trials, too.
bool isObserved() {
  constexpr StringRef Observing[] = {"print-", "debug-pass", "debug-counter", "debug-only", "stop-", "start-", "view-"};
  return any_of(cl::getRegisteredOptions(), [&](const auto &Entry) {
    return Entry.second->getNumOccurrences() != 0 &&
           any_of(Observing, [&](StringRef Prefix) { return Entry.second->ArgStr.starts_with(Prefix); });
  });
}

bool setUp() {
  auto Read = std::make_unique<FunctionOptions>();
  std::string Error = compiler_opt::versionMismatch();
  if (Error.empty())
    Error = readOptions(*Read);
  if (!Error.empty()) {
    compiler_opt::warnOrFail(Error, "compiling without options of single functions", "MLGO_OPTIONS_STRICT");
    return false;
  }
  if (isObserved())
    MaxInstructions = 0;
  Options = Read.release();
  Owner = std::this_thread::get_id();
  initializeDominatorTreeWrapperPassPass(*PassRegistry::getPassRegistry());
  initializeLoopSimplifyPass(*PassRegistry::getPassRegistry());
  replacePass(&DominatorTreeWrapperPass::ID, []() -> Pass * { return new DominatorTreeWrapper; });
  if (MaxInstructions) {
    initializeStackMapLivenessPass(*PassRegistry::getPassRegistry());
    OriginalStackMapLiveness = replacePass(
        &StackMapLivenessID, []() -> Pass * { return new compiler_opt::CostWrapper(OriginalStackMapLiveness()); });
  }
  OriginalLoopSimplify = replacePass(&LoopSimplifyID, []() -> Pass * { return new LoopSimplifyWrapper; });
  return true;
}

// Called for each module that clang compiles, before its pipelines are built.
void registerCallbacks(PassBuilder &PB) {
  static const bool IsSetUp = setUp();
  if (!IsSetUp)
    return;
  options().leave();
  PB.registerPipelineStartEPCallback([](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(ModuleStart()); });
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  PassPluginLibraryInfo Info{};
  Info.APIVersion = LLVM_PLUGIN_API_VERSION;
  Info.PluginName = "mlgo-options";
  Info.PluginVersion = LLVM_VERSION_STRING;
  Info.RegisterPassBuilderCallbacks = registerCallbacks;
  return Info;
}
