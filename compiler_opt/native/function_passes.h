// Passes of the optimiser that run on single functions before their code is generated; they may be a user's own.
//
//   FunctionPasses Passes;
//   std::string Error = Passes.load(path of a pass plugin);   // if there is one
//   Error = Passes.check("rebase");
//   Passes.run("rebase", function, its target machine);
//
// They may not make what has been expanded by then: atomic operations and divisions that the target does not have.

#ifndef COMPILER_OPT_NATIVE_FUNCTION_PASSES_H_
#define COMPILER_OPT_NATIVE_FUNCTION_PASSES_H_

#include "plugin_environment.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Path.h"
#include "llvm/Target/TargetMachine.h"

#include <dlfcn.h>
#include <optional>
#include <string>
#include <utility>

namespace compiler_opt {

class FunctionPasses {
public:
  // Loads a pass plugin; a name without a folder is that of a file beside this library. Its options exist from then on.
  // Returns an error message, or an empty string on success.
  std::string load(llvm::StringRef Path) {
    llvm::SmallString<256> Found = Path;
    static const char Here = 0;
    Dl_info Library;
    if (!llvm::sys::path::has_parent_path(Path) && dladdr(&Here, &Library)) {
      Found = llvm::sys::path::parent_path(Library.dli_fname);
      llvm::sys::path::append(Found, Path);
    }
    auto Loaded = llvm::PassPlugin::Load(Found.str().str());
    if (Loaded)
      Plugin = *Loaded;
    return llvm::toString(Loaded.takeError());
  }

  // Why there is no such pipeline of function passes, or an empty string. Beside a plugin, LLVM's own are none, since some
  // write files.
  std::string check(llvm::StringRef Pipeline) const {
    llvm::PassBuilder Builder, Own;
    llvm::FunctionPassManager Passes;
    if (llvm::Error Unknown = Own.parsePassPipeline(Passes, Pipeline))
      llvm::consumeError(std::move(Unknown));
    else if (Plugin)
      return Pipeline.str() + " is a pass of LLVM's own, not of the plugin";
    return llvm::toString(parse(Pipeline, Builder, Passes));
  }

  void run(llvm::StringRef Pipeline, llvm::Function &F, llvm::TargetMachine &Machine) const {
    llvm::LoopAnalysisManager Loops;
    llvm::FunctionAnalysisManager Functions;
    llvm::CGSCCAnalysisManager Components;
    llvm::ModuleAnalysisManager Modules;
    llvm::PassBuilder Builder(&Machine);
    llvm::FunctionPassManager Passes;
    llvm::cantFail(parse(Pipeline, Builder, Passes));
    Builder.registerModuleAnalyses(Modules);
    Builder.registerCGSCCAnalyses(Components);
    Builder.registerFunctionAnalyses(Functions);
    Builder.registerLoopAnalyses(Loops);
    Builder.crossRegisterProxies(Loops, Functions, Components, Modules);
    Passes.run(F, Functions);
  }

private:
  llvm::Error parse(llvm::StringRef Pipeline, llvm::PassBuilder &Builder, llvm::FunctionPassManager &Passes) const {
    if (Plugin)
      Plugin->registerPassBuilderCallbacks(Builder);
    return Builder.parsePassPipeline(Passes, Pipeline);
  }

  std::optional<llvm::PassPlugin> Plugin;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_PASSES_H_
