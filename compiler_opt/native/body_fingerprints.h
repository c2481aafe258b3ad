// Identifies functions by their names and bodies.

#ifndef COMPILER_OPT_NATIVE_BODY_FINGERPRINTS_H_
#define COMPILER_OPT_NATIVE_BODY_FINGERPRINTS_H_

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/xxhash.h"

#include <cstdint>

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

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_BODY_FINGERPRINTS_H_
