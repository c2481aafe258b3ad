// Options of LLVM's passes that differ between the functions of a module.
//
//   FunctionOptions Options;
//   std::string Error = Options.load(path);   // if there is a plugin of the user's own
//   Error = Options.read(menu, choices, number of the default set);
//   Options.start(module);                // before its pipeline runs
//   if (Options.beginTrials(module))      // before code is generated for any of its functions
//     Options.tryOut(maximum, generate);  // chooses sets by generating code with each
//   Options.enter(function);              // before code is generated for it
//   Options.prepare(function, machine);   // runs its passes
//   Options.leave();                      // before anything else
//
// A menu has a set of options on each line, such as `-min-jump-table-entries=7 -disable-machine-cse=true`; the first
// set, which may be empty, also holds outside of functions. Choices have a line `SET BODY NAME` for each function that
// has another set than the default: the number of the set, the fingerprint of its body in hexadecimal, and its name. Of
// an option that the command line has, every set leaves the command line's value.
//
// Most options are variables of the process that passes read when they run, so that they can be set before a function
// and set back after it. Those in `kSkippingOptions` are read when the code generator's pipeline is built: the passes
// stay in it, and `skips` says whether to pass over them in the current function. Two are no options of the code
// generator's: `-force-attribute=optsize` gives a function that attribute, as LLVM's option of the name does in the
// optimiser, and `-passes=NAME` runs a function pass of the optimiser, which may be one of a user's plugin. Both happen
// before the function's code is generated.

#ifndef COMPILER_OPT_NATIVE_FUNCTION_OPTIONS_H_
#define COMPILER_OPT_NATIVE_FUNCTION_OPTIONS_H_

#include "body_fingerprints.h"
#include "function_passes.h"
#include "option_trials.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Target/TargetMachine.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace compiler_opt {

// An option that keeps a pass out of the pipeline, with that pass's argument and name. LLVM's pass gate calls passes by
// either, depending on its version and on the kind of pass.
struct SkippingOption {
  const char *Option, *Argument, *Name;
};
inline constexpr SkippingOption kLoopReduction = {"disable-lsr", "loop-reduce", "Loop Strength Reduction"};
inline constexpr SkippingOption kSkippingOptions[] = {
    kLoopReduction,
    {"disable-branch-fold", "branch-folder", "Control Flow Optimizer"},
    {"disable-cgp", "codegenprepare", "CodeGen Prepare"},
    {"disable-copyprop", "machine-cp", "Machine Copy Propagation Pass"},
    {"disable-early-taildup", "early-tailduplication", "Early Tail Duplication"},
    {"disable-lsr", "canon-freeze", "Canonicalize Freeze Instructions in Loops"},
    {"disable-machine-cse", "machine-cse", "Machine Common Subexpression Elimination"},
    {"disable-machine-dce", "dead-mi-elimination", "Remove dead machine instructions"},
    {"disable-machine-licm", "early-machinelicm", "Early Machine Loop Invariant Code Motion"},
    {"disable-machine-sink", "machine-sink", "Machine code sinking"},
    {"disable-peephole", "peephole-opt", "Peephole Optimizations"},
    {"disable-postra-machine-licm", "machinelicm", "Machine Loop Invariant Code Motion"},
    {"disable-postra-machine-sink", "postra-machine-sink", "PostRA Machine Sink"},
    {"disable-ssc", "stack-slot-coloring", "Stack Slot Coloring"},
    {"disable-tail-duplicate", "tailduplication", "Tail Duplication"},
};

inline constexpr llvm::StringLiteral kForcedAttribute = "force-attribute";

// Not for several threads: options belong to the process.
class FunctionOptions {
public:
  // See `FunctionPasses`.
  std::string load(llvm::StringRef Plugin) { return Passes.load(Plugin); }

  // Reads both texts, and applies the first set. Returns an error message, or an empty string on success. After an
  // error, all options are as before.
  std::string read(llvm::StringRef Menu, llvm::StringRef Choices, size_t DefaultSet) {
    this->DefaultSet = DefaultSet;
    std::string Error = readMenu(Menu);
    if (Error.empty())
      Error = readChoices(Choices);
    if (Error.empty() && DefaultSet >= Sets.size())
      Error = "expected the number of a default set below " + std::to_string(Sets.size()) + ", found " +
              std::to_string(DefaultSet);
    if (Error.empty())
      return apply(0);
    for (llvm::cl::Option *Option : Ours)
      Option->reset();
    return Error;
  }

  // Finds the functions of a module before any inlining, by which they are known afterwards. `Visit` gets each name and
  // body.
  void start(const llvm::Module &M, llvm::function_ref<void(llvm::StringRef, uint64_t)> Visit) {
    ByName.clear();
    Tried = false;
    for (const llvm::Function &F : M) {
      if (F.isDeclaration())
        continue;
      if (symbolName(F).contains('\n'))
        continue; // which no file can name
      const auto Body = fingerprintOf(F);
      Visit(symbolName(F), Body);
      const auto Found = Choices.find({symbolName(F).str(), Body});
      if (Found != Choices.end())
        ByName[symbolName(F)] = Found->second;
    }
    (void)apply(0);
  }

  // Whether `tryOut` is to be called for a module, since there is anything to choose in it; true once at most.
  bool beginTrials(const llvm::Module &M) {
    if (Tried || Trial)
      return false;
    Tried = true;
    return llvm::any_of(M, [&](const llvm::Function &F) { return !F.isDeclaration() && !ByName.count(symbolName(F)); });
  }

  // Chooses for each function without a choice: of the sets with which it executes at most `MaxInstructions` times the
  // instructions of the first one, and of its calls, that which makes it smallest. `Generate` generates code with each set in turn. Returns
  // what functions cost with each.
  template <typename Generator> std::vector<FunctionCosts> tryOut(double MaxInstructions, Generator Generate) {
    std::vector<FunctionCosts> Costs(Sets.size());
    for (size_t Number = 0; Number < Sets.size(); ++Number) {
      Trial = Number;
      Costs[Number] = Generate();
    }
    Trial.reset();
    for (const auto &First : Costs[0]) {
      size_t Best = 0;
      uint64_t Fewest = First.second.Bytes;
      for (size_t Number = 1; Number < Sets.size(); ++Number) {
        const FunctionCost Cost = Costs[Number].lookup(First.first());
        const bool IsSlow = Cost.Instructions > MaxInstructions * First.second.Instructions ||
                            Cost.Calls > MaxInstructions * First.second.Calls;
        if (Cost.Bytes && Cost.Bytes < Fewest && !IsSlow) {
          Best = Number;
          Fewest = Cost.Bytes;
        }
      }
      ByName.try_emplace(First.first(), Best);
    }
    return Costs;
  }

  // Whether `tryOut` is generating code.
  bool isTrying() const { return Trial.has_value(); }

  // Sets the options of a function. `skips` is then about it.
  void enter(llvm::Function &F) {
    const auto Found = ByName.find(symbolName(F));
    // All values have been accepted before.
    (void)apply(Trial ? *Trial : Found == ByName.end() ? DefaultSet : Found->second);
    if (Sets[*Current].ForSize && !F.hasOptNone())
      F.addFnAttr(llvm::Attribute::OptimizeForSize);
  }

  // Runs the passes of a function's set, if any, on it; those of each function once before `leave`. Returns whether it
  // did. `enter` was called before.
  bool prepare(llvm::Function &F, llvm::function_ref<llvm::TargetMachine &()> Machine) {
    const llvm::StringRef Pipeline = Sets[*Current].Passes;
    if (Pipeline.empty() || F.hasOptNone() || !Prepared.insert(&F).second)
      return false;
    Passes.run(Pipeline, F, Machine());
    return true;
  }

  // Sets the options of what is not about a single function.
  void leave() {
    (void)apply(0);
    Prepared.clear();
  }

  // Whether a pass is passed over in the current function.
  bool skips(llvm::StringRef Pass) const {
    return Current && llvm::any_of(Sets[*Current].Skipped, [&](const SkippingOption *Each) {
             return Pass == Each->Argument || Pass == Each->Name;
           });
  }

private:
  struct Set {
    std::map<llvm::cl::Option *, std::string> Values;
    llvm::SmallVector<const SkippingOption *, 4> Skipped;
    bool ForSize = false; // whether functions get the attribute `optsize`
    std::string Passes;
  };

  std::string readMenu(llvm::StringRef Text) {
    const auto Known = llvm::cl::getRegisteredOptions();
    llvm::SmallVector<llvm::StringRef, 16> Lines;
    Text.split(Lines, '\n');
    if (!Lines.empty() && Lines.back().empty())
      Lines.pop_back();
    for (llvm::StringRef Line : Lines) {
      Set &Added = Sets.emplace_back();
      llvm::SmallVector<llvm::StringRef, 16> Words;
      Line.split(Words, ' ', -1, /*KeepEmpty=*/false);
      for (llvm::StringRef Word : Words) {
        const auto [Name, Value] = Word.ltrim('-').split('=');
        if (Name == kForcedAttribute) {
          if (Value != "optsize")
            return "-force-attribute: expected optsize, found '" + Value.str() + "'";
          Added.ForSize = true;
          continue;
        }
        if (Name == "passes") {
          if (std::string Error = Passes.check(Value); !Error.empty())
            return "-passes: " + Error;
          Added.Passes = Value.str();
          continue;
        }
        const auto Found = Known.find(Name);
        if (Found == Known.end())
          return "this LLVM has no option -" + Name.str();
        llvm::cl::Option *const Option = Found->second;
        if (!Ours.count(Option) && Option->getNumOccurrences() != 0)
          continue; // The command line's.
        Ours.insert(Option);
        if (!isSkipping(Name))
          Added.Values[Option] = Value.str();
        else if (Value.empty() || Value == "true")
          addSkipped(Added, Name);
        else if (Value != "false")
          return "-" + Name.str() + ": expected true or false, found '" + Value.str() + "'";
      }
    }
    // Each value is tried, so that a mistake is an error now.
    for (size_t Number = 0; Number < Sets.size(); ++Number)
      if (std::string Error = apply(Number); !Error.empty())
        return Error;
    return Sets.empty() ? "expected a set of options on each line, found none" : "";
  }

  static bool isSkipping(llvm::StringRef Name) {
    return llvm::any_of(kSkippingOptions, [&](const SkippingOption &Each) { return Name == Each.Option; });
  }

  static void addSkipped(Set &Added, llvm::StringRef Name) {
    for (const SkippingOption &Each : kSkippingOptions)
      if (Name == Each.Option)
        Added.Skipped.push_back(&Each);
  }

  std::string readChoices(llvm::StringRef Text) {
    while (!Text.empty()) {
      llvm::StringRef Line;
      std::tie(Line, Text) = Text.split('\n');
      llvm::StringRef Number, Body, Name;
      std::tie(Number, Name) = Line.split(' ');
      std::tie(Body, Name) = Name.split(' ');
      size_t Set = 0;
      uint64_t Fingerprint = 0;
      if (Number.getAsInteger(10, Set) || Set >= Sets.size() || Body.getAsInteger(16, Fingerprint) || Name.empty())
        return "expected lines of the number of a set, below " + std::to_string(Sets.size()) +
               ", a fingerprint and a function, found '" + Line.take_front(80).str() + "'";
      Choices[{Name.str(), Fingerprint}] = Set;
    }
    return "";
  }

  // Sets the options of a set, and those of the one before back to LLVM's defaults.
  std::string apply(size_t Number) {
    if (Current == Number)
      return "";
    const Set &New = Sets[Number];
    if (Current) {
      for (const auto &[Option, Value] : Sets[*Current].Values)
        if (!New.Values.count(Option))
          Option->reset();
    }
    for (const auto &[Option, Value] : New.Values) {
      if (Current) {
        const auto Same = Sets[*Current].Values.find(Option);
        if (Same != Sets[*Current].Values.end() && Same->second == Value)
          continue;
      }
      // Some passes ask whether an option was given at all.
      Option->reset();
      if (Option->addOccurrence(0, Option->ArgStr, Value))
        return "-" + Option->ArgStr.str() + " does not take the value '" + Value + "'";
    }
    Current = Number;
    return "";
  }

  FunctionPasses Passes;
  llvm::DenseSet<const llvm::Function *> Prepared;
  std::vector<Set> Sets;
  std::set<llvm::cl::Option *> Ours; // not on the command line
  std::map<std::pair<std::string, uint64_t>, size_t> Choices;
  llvm::StringMap<size_t> ByName; // of the current module
  size_t DefaultSet = 0;
  bool Tried = false;          // whether trials have begun in the current module
  std::optional<size_t> Trial; // the set that all functions have now
  std::optional<size_t> Current;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_OPTIONS_H_
