// What the functions of a module cost with a set of options, found by generating their code.
//
//   const TrialModule Trial(module, its target machine);
//   FunctionCosts Costs = Trial.measure();   // with the options in force
//
// `CostWrapper` has to be in place of
// llvm::StackMapLivenessID, one of the last passes, which counts what functions execute.

#ifndef COMPILER_OPT_NATIVE_OPTION_TRIALS_H_
#define COMPILER_OPT_NATIVE_OPTION_TRIALS_H_

#include "body_fingerprints.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/MachineInstr.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Pass.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace compiler_opt {

struct FunctionCost {
  uint64_t Bytes = 0;      // of code, and of its entry in the table for unwinding
  double Instructions = 0; // that a call executes, by the frequencies of blocks that the compiler estimates
  double Calls = 0;        // of these, calls and repeated instructions, which take longer than others
};
using FunctionCosts = llvm::StringMap<FunctionCost>;

// Where `CostWrapper` counts; null outside of trials.
inline FunctionCosts *CountedCosts = nullptr;

// Counts what a function executes, before the pass in whose place it is.
class CostWrapper final : public llvm::MachineFunctionPass {
public:
  explicit CostWrapper(llvm::Pass *Original) : MachineFunctionPass(ID), Original(Original), IsCounting(CountedCosts) {}
  ~CostWrapper() override { Original->setResolver(nullptr); }

  llvm::StringRef getPassName() const override { return Original->getPassName(); }

  void getAnalysisUsage(llvm::AnalysisUsage &Usage) const override {
    Original->getAnalysisUsage(Usage);
    if (IsCounting)
      Usage.addRequired<llvm::MachineBlockFrequencyInfoWrapperPass>();
  }

  bool runOnMachineFunction(llvm::MachineFunction &F) override {
    if (IsCounting)
      count(F, (*CountedCosts)[symbolName(F.getFunction())]);
    if (!Original->getResolver())
      Original->setResolver(getResolver()); // of which the wrapper disposes
    return static_cast<llvm::FunctionPass &>(*Original).runOnFunction(F.getFunction());
  }

private:
  void count(const llvm::MachineFunction &F, FunctionCost &Cost) {
    const auto &Frequencies = getAnalysis<llvm::MachineBlockFrequencyInfoWrapperPass>().getMBFI();
    const llvm::TargetInstrInfo &Target = *F.getSubtarget().getInstrInfo();
    for (const llvm::MachineBasicBlock &Block : F) {
      int64_t Instructions = 0, Calls = 0;
      for (const llvm::MachineInstr &I : Block) {
        Instructions += !I.isMetaInstruction();
        Calls += I.isCall() || Target.getName(I.getOpcode()).starts_with("REP_");
      }
      const double Frequency = Frequencies.getBlockFreqRelativeToEntryBlock(&Block);
      Cost.Instructions += static_cast<double>(Instructions) * Frequency;
      Cost.Calls += static_cast<double>(Calls) * Frequency;
    }
  }

  static inline char ID = 0;
  const std::unique_ptr<llvm::Pass> Original;
  const bool IsCounting;
};

// A machine like another one, with a state of its own.
inline std::unique_ptr<llvm::TargetMachine> machineLike(const llvm::TargetMachine &Machine) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple &Triple = Machine.getTargetTriple();
#else
  const llvm::StringRef Triple = Machine.getTargetTriple().str();
#endif
  return std::unique_ptr<llvm::TargetMachine>(Machine.getTarget().createTargetMachine(
      Triple, Machine.getTargetCPU(), Machine.getTargetFeatureString(), Machine.Options, Machine.getRelocationModel(),
      Machine.getCodeModel(), Machine.getOptLevel()));
}

// Says nothing: what the code generator has to say, it says when it generates the code that is used.
class SilentHandler final : public llvm::DiagnosticHandler {
public:
  bool handleDiagnostics(const llvm::DiagnosticInfo &Info) override {
    HasError |= Info.getSeverity() == llvm::DS_Error;
    return true;
  }

  bool HasError = false;
};

// A module, to generate code of with several sets of options before its own code is generated.
class TrialModule {
public:
  TrialModule(const llvm::Module &M, const llvm::TargetMachine &Machine) : Machine(Machine) {
    // Without a table of symbols, for which assembly in the module would be read, with its warnings.
    llvm::BitcodeWriter Writer(Bitcode);
    Writer.writeModule(M, /*ShouldPreserveUseListOrder=*/true);
    Writer.writeStrtab();
  }

  // What its functions cost with the options in force; nothing if its code cannot be generated with these, or not as an
  // object in the format ELF. For one thread.
  FunctionCosts measure() const {
    FunctionCosts Costs;
    if (!Machine.getTargetTriple().isOSBinFormatELF())
      return Costs;
    // Its own context has no remarks and statistics of the user's.
    llvm::LLVMContext Context;
    auto *const Handler = new SilentHandler;
    Context.setDiagnosticHandler(std::unique_ptr<llvm::DiagnosticHandler>(Handler));
    auto Read = llvm::parseBitcodeFile({llvm::StringRef(Bitcode.data(), Bitcode.size()), "trial"}, Context);
    const std::unique_ptr<llvm::TargetMachine> Own = machineLike(Machine);
    if (!Read || !Own) {
      llvm::consumeError(Read.takeError());
      return Costs;
    }
    llvm::Module &Copy = **Read;
    llvm::StripDebugInfo(Copy);
    llvm::SmallVector<char, 0> Object;
    llvm::raw_svector_ostream Output(Object);
    llvm::legacy::PassManager Passes;
    Passes.add(new llvm::TargetLibraryInfoWrapperPass(llvm::TargetLibraryInfoImpl(Own->getTargetTriple())));
    Passes.add(llvm::createTargetTransformInfoWrapperPass(Own->getTargetIRAnalysis()));
    CountedCosts = &Costs;
    const bool Fails = Own->addPassesToEmitFile(Passes, Output, nullptr, llvm::CodeGenFileType::ObjectFile);
    if (!Fails)
      Passes.run(Copy);
    CountedCosts = nullptr;
    if (Fails || Handler->HasError || !readSizes({Output.str(), "trial"}, Costs))
      Costs.clear();
    return Costs;
  }

private:
  // Adds up the bytes of functions: their code, and their entries in the table for unwinding.
  static bool readSizes(llvm::MemoryBufferRef Object, FunctionCosts &Costs) {
    auto Read = llvm::object::ObjectFile::createObjectFile(Object);
    const auto *Elf = Read ? llvm::dyn_cast<llvm::object::ELFObjectFileBase>(Read->get()) : nullptr;
    llvm::consumeError(Read.takeError());
    if (!Elf)
      return false;
    std::map<Place, FunctionCost *> Placed;
    for (const llvm::object::ELFSymbolRef Symbol : Elf->symbols()) {
      auto Name = Symbol.getName();
      auto Section = Symbol.getSection();
      const bool IsDefined = Name && Section && *Section != Elf->section_end();
      const auto Found = IsDefined ? functionOf(*Name, Costs) : Costs.end();
      llvm::consumeError(llvm::joinErrors(Name.takeError(), Section.takeError()));
      if (Found == Costs.end())
        continue;
      Found->second.Bytes += Symbol.getSize();
      Placed[{(*Section)->getIndex(), llvm::cantFail(Symbol.getValue())}] = &Found->second;
    }
    for (const llvm::object::SectionRef Section : Elf->sections()) {
      auto Name = Section.getName();
      auto Content = Section.getContents();
      if (Name && Content && *Name == ".eh_frame")
        addEntries(*Content, targets(*Elf, Section), Placed);
      llvm::consumeError(llvm::joinErrors(Name.takeError(), Content.takeError()));
    }
    return true;
  }

  // The function that a symbol is, or is a part of, such as of `f.cold` and `f.__part.2` of split functions.
  static FunctionCosts::iterator functionOf(llvm::StringRef Name, FunctionCosts &Costs) {
    const auto Whole = Costs.find(Name);
    if (Whole != Costs.end())
      return Whole;
    if (Name.consume_back(".cold"))
      return Costs.find(Name);
    return Costs.find(Name.rsplit(".__part.").first);
  }

  using Place = std::pair<uint64_t, uint64_t>; // number of a section, and offset in it

  // What the relocations of a section refer to, by offset.
  static std::map<uint64_t, Place> targets(const llvm::object::ELFObjectFileBase &Elf,
                                           const llvm::object::SectionRef &Section) {
    std::map<uint64_t, Place> Found;
    for (const llvm::object::SectionRef Other : Elf.sections()) {
      auto Relocated = Other.getRelocatedSection();
      if (!Relocated) {
        llvm::consumeError(Relocated.takeError());
        continue;
      }
      if (*Relocated == Elf.section_end() || **Relocated != Section)
        continue;
      for (const llvm::object::ELFRelocationRef Relocation : Other.relocations()) {
        const auto Symbol = Relocation.getSymbol();
        auto Target = Symbol->getSection();
        auto Addend = Relocation.getAddend();
        if (Target && Addend && *Target != Elf.section_end())
          Found[Relocation.getOffset()] = {(*Target)->getIndex(), llvm::cantFail(Symbol->getValue()) + *Addend};
        llvm::consumeError(llvm::joinErrors(Target.takeError(), Addend.takeError()));
      }
    }
    return Found;
  }

  // Entries have their length first, then a number that is 0 for what several share, then the function's address.
  static void addEntries(llvm::StringRef Table, const std::map<uint64_t, Place> &Targets,
                         const std::map<Place, FunctionCost *> &Placed) {
    for (size_t Start = 0; Start + 8 <= Table.size();) {
      const uint64_t Length = 4 + uint64_t(llvm::support::endian::read32le(Table.data() + Start));
      const auto Target = Targets.find(Start + 8);
      if (Target != Targets.end() && llvm::support::endian::read32le(Table.data() + Start + 4))
        if (const auto Found = Placed.find(Target->second); Found != Placed.end())
          Found->second->Bytes += Length;
      Start += Length;
    }
  }

  const llvm::TargetMachine &Machine;
  llvm::SmallVector<char, 0> Bitcode;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_OPTION_TRIALS_H_
