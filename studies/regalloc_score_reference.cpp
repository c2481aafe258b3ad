// LLVM's own register-allocation score, in two forms:
//
//   a program, linked against libLLVM: `regalloc_score_reference F.mir...` reads machine IR that
//     `clang -mllvm -stop-after=virtregrewriter` wrote, and prints the scores.
//   a plugin for clang >= 22, built with -DPLUGIN: `clang -cc1 -load PLUGIN.so ...` compiles as usual and writes the
//     scores to the file that the environment variable REGALLOC_SCORES names.
//
// Each function has one line, tab-separated: name, score, and the terms of the score: copies, loads, stores,
// loads-and-stores, cheap and expensive rematerialisations, each times its block's frequency relative to the entry.
// A compiler in development mode runs the pass `regallocscoringpass` here, which calls `calculateRegAllocScore`;
// libLLVM exports that function.

#include "llvm/ADT/StringExtras.h"
#include "llvm/CodeGen/MIRParser/MIRParser.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineBranchProbabilityInfo.h"
#include "llvm/CodeGen/MachineDominators.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#ifdef PLUGIN
#include "llvm/Target/RegisterTargetPassConfigCallback.h"
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

// llvm/lib/CodeGen/RegAllocScore.h, which is not installed.
namespace llvm {
class RegAllocScore final {
 public:
  double copies = 0, loads = 0, stores = 0, cheap_remats = 0, load_stores = 0, expensive_remats = 0;
  double getScore() const;
};
RegAllocScore calculateRegAllocScore(const MachineFunction &function, const MachineBlockFrequencyInfo &frequencies);
}  // namespace llvm

namespace {

bool print_score(std::FILE *file, const llvm::MachineFunction &code,
                 const llvm::MachineBlockFrequencyInfo &frequencies) {
  const llvm::RegAllocScore s = llvm::calculateRegAllocScore(code, frequencies);
  // The default weights. The sums differ if this LLVM's class has other fields than those declared above.
  const double sum =
      0.2 * s.copies + 4 * s.loads + s.stores + 5 * s.load_stores + 0.2 * s.cheap_remats + s.expensive_remats;
  if (!(std::fabs(sum - s.getScore()) <= 1e-9 * sum)) {
    return llvm::errs() << "RegAllocScore has changed in this LLVM\n", false;
  }
  std::fprintf(file, "%s\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\n", code.getName().str().c_str(),
               s.getScore(), s.copies, s.loads, s.stores, s.load_stores, s.cheap_remats, s.expensive_remats);
  return true;
}

#ifdef PLUGIN

class PrintScores : public llvm::MachineFunctionPass {
 public:
  static char ID;
  PrintScores() : MachineFunctionPass(ID) {}

  void getAnalysisUsage(llvm::AnalysisUsage &usage) const override {
    usage.setPreservesAll();
    usage.addRequired<llvm::MachineBlockFrequencyInfoWrapperPass>();
    MachineFunctionPass::getAnalysisUsage(usage);
  }

  bool doInitialization(llvm::Module &) override {
    const char *path = std::getenv("REGALLOC_SCORES");
    file_ = path ? std::fopen(path, "w") : nullptr;
    if (!file_) llvm::report_fatal_error("REGALLOC_SCORES: cannot be written");
    return false;
  }

  bool runOnMachineFunction(llvm::MachineFunction &code) override {
    const auto &frequencies = getAnalysis<llvm::MachineBlockFrequencyInfoWrapperPass>().getMBFI();
    if (!print_score(file_, code, frequencies)) llvm::report_fatal_error("cannot score");
    return false;
  }

  bool doFinalization(llvm::Module &) override {
    if (std::fclose(file_)) llvm::report_fatal_error("REGALLOC_SCORES: cannot be written");
    return false;
  }

 private:
  std::FILE *file_ = nullptr;
};

char PrintScores::ID;

const llvm::RegisterTargetPassConfigCallback callback(
    [](llvm::TargetMachine &, llvm::PassManagerBase &, llvm::TargetPassConfig *passes) {
      passes->insertPass(&llvm::VirtRegRewriterID, new PrintScores);
    });

}  // namespace

#else

#if LLVM_VERSION_MAJOR >= 20
using CodeGenMachine = llvm::TargetMachine;
#else
using CodeGenMachine = llvm::LLVMTargetMachine;
#endif

std::unique_ptr<llvm::TargetMachine> make_machine(llvm::StringRef name) {
#if LLVM_VERSION_MAJOR >= 22
  const llvm::Triple triple(name);
#else
  const std::string triple = name.str();
#endif
  std::string problem;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!target) return nullptr;
  // Processor and features are attributes of each function.
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, "", "", llvm::TargetOptions(), std::nullopt));
}

// LLVM 19 cannot read the vectors of zeros in constant pools that it writes: this expands them.
std::string readable(llvm::StringRef code) {
  const llvm::StringRef zeros = " zeroinitializer'", value = "value: ";
  std::string result;
  for (llvm::StringRef line : llvm::split(code, '\n')) {
    const auto [head, tail] = line.split("'<");
    const auto [count, type] = tail.drop_back(std::min(tail.size(), zeros.size() + 1)).split(" x ");
    unsigned length;
    if (line.ends_with(zeros) && head.trim() == value.trim() && !count.getAsInteger(10, length)) {
      result += head.str() + "'<" + count.str() + " x " + type.str() + "> <";
      for (unsigned place = 0; place < length; ++place) {
        result += (place ? ", " : "") + type.str() + (type == "ptr" ? " null" : type.starts_with("i") ? " 0" : " 0.0");
      }
      result += ">'\n";
    } else {
      result += line.str() + '\n';
    }
  }
  return result;
}

bool print_scores(const char *path) {
  llvm::LLVMContext context;
  const auto file = llvm::MemoryBuffer::getFile(path);
  if (!file) return llvm::errs() << path << ": " << file.getError().message() << "\n", false;
  const auto parser =
      llvm::createMIRParser(llvm::MemoryBuffer::getMemBufferCopy(readable((*file)->getBuffer()), path), context);
  if (!parser) return false;
  std::unique_ptr<llvm::TargetMachine> machine;
  const auto module =
      parser->parseIRModule([&](llvm::StringRef triple, llvm::StringRef) -> std::optional<std::string> {
        machine = make_machine(triple);
        if (!machine) return std::nullopt;
        return machine->createDataLayout().getStringRepresentation();
      });
  if (!module || !machine) return llvm::errs() << path << ": no machine IR of a target of this LLVM\n", false;
  llvm::MachineModuleInfo functions(static_cast<CodeGenMachine *>(machine.get()));
  if (parser->parseMachineFunctions(*module, functions)) return false;
  for (const llvm::Function &function : *module) {
    llvm::MachineFunction *code = functions.getMachineFunction(function);
    if (!code) continue;
    llvm::MachineDominatorTree dominators(*code);
    llvm::MachineLoopInfo loops(dominators);
    llvm::MachineBranchProbabilityInfo probabilities;
    const llvm::MachineBlockFrequencyInfo frequencies(*code, probabilities, loops);
    if (!print_score(stdout, *code, frequencies)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  llvm::InitializeAllTargets();
  llvm::InitializeAllTargetMCs();
  llvm::InitializeAllAsmParsers();
  for (int place = 1; place < argc; ++place) {
    if (!print_scores(argv[place])) return 1;
  }
}

#endif
