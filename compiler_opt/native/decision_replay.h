// Replays the decisions of a decision file in one module, and identifies functions by their bodies.

#ifndef COMPILER_OPT_NATIVE_DECISION_REPLAY_H_
#define COMPILER_OPT_NATIVE_DECISION_REPLAY_H_

#include "decision_file.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MD5.h"
#include "llvm/Support/xxhash.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace compiler_opt {

// A function's name in logs and decision files.
inline llvm::StringRef symbolName(const llvm::Function &F) {
  return llvm::GlobalValue::dropLLVMManglingEscape(F.getName());
}

// A fingerprint of a function's body: of its blocks, the opcodes in them, and the names of the functions that they call.
// It is the same in every module and process with the same major version of LLVM, with and without debug information.
inline uint64_t fingerprintOf(const llvm::Function &F) {
  uint64_t Hash = F.size();
  // Each step is a bijection of the hash, and carries every bit of it to the lower half and up again.
  const auto Add = [&Hash](uint64_t Value) {
    Hash = (Hash ^ Value) * 0x9E3779B97F4A7C15u;
    Hash ^= Hash >> 32;
  };
  for (const llvm::BasicBlock &BB : F) {
    Add(0);
    for (const llvm::Instruction &I : BB) {
      if (const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I)) {
        if (llvm::isa<llvm::DbgInfoIntrinsic, llvm::PseudoProbeInst>(I))
          continue;
        if (const llvm::Function *Callee = Call->getCalledFunction())
          Add(llvm::xxh3_64bits(Callee->getName()));
      }
      Add(I.getOpcode());
    }
  }
  return Hash;
}

// The fingerprints of a module's functions before any inlining.
class BodyFingerprints {
public:
  // Computes those of the functions that are wanted, by name.
  BodyFingerprints(const llvm::Module &M, llvm::function_ref<bool(llvm::StringRef)> IsWanted) {
    for (const llvm::Function &F : M)
      if (!F.isDeclaration() && IsWanted(symbolName(F)))
        Known[symbolName(F)] = fingerprintOf(F);
  }

  // The fingerprint of a wanted function. Of one that was created later (by splitting a coroutine), it is that of its
  // body when it is first requested, which depends on what was inlined before.
  uint64_t of(const llvm::Function &F) {
    // By name, since the address of a deleted function may be reused.
    const auto [Position, IsNew] = Known.try_emplace(symbolName(F), 0);
    if (IsNew)
      Position->second = fingerprintOf(F);
    return Position->second;
  }

private:
  llvm::StringMap<uint64_t> Known;
};

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
