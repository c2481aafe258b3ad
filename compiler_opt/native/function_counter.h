// A pass that writes the features of a module's functions to a file, right after inlining (see function_features.h).
//
// Of each function that will be emitted, `SYMBOL\0`, then `name value\n` for each feature that is not zero, then `\0`. They
// are those of a copy of the module, which is brought nearer to what the code generator sees; the module is not changed.

#ifndef COMPILER_OPT_NATIVE_FUNCTION_COUNTER_H_
#define COMPILER_OPT_NATIVE_FUNCTION_COUNTER_H_

#include "body_fingerprints.h"
#include "function_features.h"
#include "plugin_environment.h"

#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace compiler_opt {

class FunctionCounter : public llvm::PassInfoMixin<FunctionCounter> {
public:
  explicit FunctionCounter(std::string Path) : Path(std::move(Path)) {}

  llvm::PreservedAnalyses run(llvm::Module &M, llvm::ModuleAnalysisManager &MAM) {
    const std::unique_ptr<llvm::Module> Copy = llvm::CloneModule(M);
    llvm::FunctionAnalysisManager &Original = MAM.getResult<llvm::FunctionAnalysisManagerModuleProxy>(M).getManager();
    llvm::LoopAnalysisManager Loops;
    llvm::FunctionAnalysisManager Functions;
    llvm::CGSCCAnalysisManager Components;
    llvm::ModuleAnalysisManager Modules;
    llvm::PassBuilder Builder;
    // Only the manager of the module knows the target.
    Functions.registerPass([&] {
      return llvm::TargetIRAnalysis([&](const llvm::Function &F) {
        auto &Mutable = const_cast<llvm::Function &>(F);
        llvm::TargetTransformInfo Target = std::move(Original.getResult<llvm::TargetIRAnalysis>(Mutable));
        Original.clear(Mutable, F.getName());
        return Target;
      });
    });
    Builder.registerModuleAnalyses(Modules);
    Builder.registerCGSCCAnalyses(Components);
    Builder.registerFunctionAnalyses(Functions);
    Builder.registerLoopAnalyses(Loops);
    Builder.crossRegisterProxies(Loops, Functions, Components, Modules);
    llvm::ModulePassManager Passes;
    llvm::cantFail(Builder.parsePassPipeline(Passes, kPipeline));
    Passes.run(*Copy, Modules);
    std::error_code Error;
    llvm::raw_fd_ostream Output(Path, Error);
    if (Error)
      fail(Path + ": " + Error.message());
    for (llvm::Function &F : *Copy) {
      if (F.isDeclaration())
        continue;
      Output << symbolName(F) << '\0';
      for (const auto &[Name, Value] : functionFeatures(F, Functions))
        if (Value != 0)
          Output << Name << ' ' << llvm::format("%.9g", Value) << '\n';
      Output << '\0';
    }
    return llvm::PreservedAnalyses::all();
  }

  static bool isRequired() { return true; }

private:
  // Of the rest of the pipeline, without loop passes, and of code generation. The last pass drops what only functions used
  // that are available elsewhere.
  static constexpr const char *kPipeline =
      "function(simplifycfg<bonus-inst-threshold=1;forward-switch-cond;switch-range-to-icmp;switch-to-lookup;"
      "no-keep-loops;hoist-common-insts;sink-common-insts>,instcombine<no-verify-fixpoint>),globaldce";

  std::string Path;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_COUNTER_H_
