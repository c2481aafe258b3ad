// Replays the decisions of a decision file in one module.

#ifndef COMPILER_OPT_NATIVE_DECISION_REPLAY_H_
#define COMPILER_OPT_NATIVE_DECISION_REPLAY_H_

#include "body_fingerprints.h"
#include "decision_file.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/Support/MD5.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace compiler_opt {

// Finds the decisions on the calls of one module.
class DecisionReplay {
public:
  DecisionReplay(const DecisionFile &File, BodyFingerprints &Bodies) : File(File), Bodies(Bodies) {}

  // Whether the file has decisions in functions of this name.
  static bool concerns(const DecisionFile &File, llvm::StringRef Name) { return File.has_caller(llvm::MD5Hash(Name)); }

  // The decision to replay on a call; nullopt if there is none. To be asked once for each decision, in order.
  std::optional<bool> next(const llvm::CallBase &CB) {
    const llvm::Function &F = *CB.getCaller();
    const auto [Position, IsNew] = Callers.try_emplace(symbolName(F), nullptr);
    if (IsNew) {
      const uint64_t Name = llvm::MD5Hash(symbolName(F));
      if (File.has_caller(Name))
        Position->second = File.find(Name, Bodies.of(F));
    }
    const DecisionFile::Caller *Caller = Position->second;
    if (!Caller)
      return std::nullopt;
    const uint64_t Callee = llvm::MD5Hash(symbolName(*CB.getCalledFunction()));
    return File.advice(*Caller, Callee, Ordinals[Caller][Callee]++);
  }

private:
  const DecisionFile &File;
  BodyFingerprints &Bodies;
  llvm::StringMap<const DecisionFile::Caller *> Callers; // null: its decisions are not in the file
  // Decisions so far, by caller and callee. A GUID may be any number, and so is no key of a DenseMap.
  llvm::DenseMap<const DecisionFile::Caller *, std::unordered_map<uint64_t, uint32_t>> Ordinals;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_DECISION_REPLAY_H_
