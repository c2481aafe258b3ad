// Features of functions right after inlining, from which their native size is predicted (docs/cost_models.md).
//
// Those of instructions are counts, by opcode and by token: an opcode with the classes of its type and operands, and with
// the instruction that it may be folded into. How many bytes each takes is learnt; nothing here knows an encoding.

#ifndef COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_
#define COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_

#include "callsite_features.h"

#include "llvm/ADT/APInt.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace compiler_opt {

using FunctionFeatures = std::map<std::string, double>; // by name

// Integers and pointers by their bits, `f` and the bits of floating-point numbers, `vec`, or `other`.
inline std::string typeClass(llvm::Type *T, const llvm::DataLayout &Layout) {
  const auto Bits = std::to_string(T->isSized() ? uint64_t(Layout.getTypeSizeInBits(T).getKnownMinValue()) : 0);
  return T->isIntOrPtrTy() ? "i" + Bits : T->isFloatingPointTy() ? "f" + Bits : T->isVectorTy() ? "vec" : "other";
}

// `zero`, `one`, and integers by the bits that they need; `undef`, other constants; stack slots, globals by how they are
// reached; parameters, and values by whether this is their only use.
inline std::string valueClass(const llvm::Value *V) {
  if (llvm::isa<llvm::UndefValue>(V))
    return "undef";
  if (const auto *Integer = llvm::dyn_cast<llvm::ConstantInt>(V)) {
    const llvm::APInt &Value = Integer->getValue();
    const unsigned Bits = Value.getSignificantBits();
    return Value.isZero() ? "zero" : Value.abs().isOne() ? "one" : Bits <= 8 ? "imm8" : Bits <= 32 ? "imm32" : "imm64";
  }
  const auto *C = llvm::dyn_cast<llvm::Constant>(V);
  const llvm::Value *const Base = C ? llvm::getUnderlyingObject(C) : V;
  if (const auto *Global = llvm::dyn_cast<llvm::GlobalValue>(Base))
    return Global->isDSOLocal() || !Global->hasDefaultVisibility() ? "glob" : "got";
  return C                                  ? (C->isNullValue() ? "zero" : "const")
         : llvm::isa<llvm::AllocaInst>(V) ? "stk"
         : llvm::isa<llvm::Argument>(V)   ? "param"
         : V->hasOneUse()                 ? "once"
                                          : "kept";
}

// Whether instruction selection makes the address part of the loads and stores that use it.
inline bool isFoldedAddress(const llvm::Value *Address) {
  const auto *GEP = llvm::dyn_cast<llvm::GetElementPtrInst>(Address);
  return GEP && GEP->getNumIndices() <= 2 && llvm::all_of(GEP->users(), [&](const llvm::User *User) {
           return llvm::getLoadStorePointerOperand(User) == Address;
         });
}

// The base of the address, and what is added to it: `d8` or `d32`, a constant offset; `s`, an index that an address can
// scale; `sd`, both; `far`, several indices or another scale.
template <class Map> // which depends on LLVM's version
std::string addressClass(const llvm::GEPOperator &Address, const llvm::DataLayout &Layout,
                         bool (llvm::GEPOperator::*Collect)(const llvm::DataLayout &, unsigned, Map &, llvm::APInt &)
                             const) {
  Map Indices;
  const unsigned Bits = Layout.getIndexTypeSizeInBits(Address.getType());
  llvm::APInt Offset(Bits, 0);
  const std::string Base = valueClass(Address.getPointerOperand());
  if (Address.getType()->isVectorTy() || !(Address.*Collect)(Layout, Bits, Indices, Offset) || Indices.size() > 1)
    return Base + "+far";
  if (Indices.empty())
    return Base + (Offset.isSignedIntN(8) ? "+d8" : "+d32");
  const llvm::APInt &Scale = Indices.begin()->second;
  return Base + (!Scale.isPowerOf2() || Scale.ugt(8) ? "+far" : Offset.isZero() ? "+s" : "+sd");
}

// A token without its opcode.
inline std::string tokenOf(const llvm::Instruction &I, const llvm::DataLayout &Layout) {
  std::string Token;
  const llvm::Value *const First = I.getNumOperands() > 0 ? I.getOperand(0) : nullptr;
  const bool IsOfOperand = llvm::isa<llvm::StoreInst, llvm::CmpInst, llvm::ReturnInst, llvm::CastInst>(I) && First;
  if (IsOfOperand)
    Token += "." + typeClass(First->getType(), Layout);
  if (!I.getType()->isVoidTy() && !llvm::isa<llvm::CmpInst>(I))
    Token += "." + typeClass(I.getType(), Layout);
  if (const auto *Address = llvm::dyn_cast<llvm::GEPOperator>(&I))
    return Token + (isFoldedAddress(&I) ? ".folded" : "." + addressClass(*Address, Layout, &llvm::GEPOperator::collectOffset));
  if (llvm::isa<llvm::CallBase, llvm::PHINode, llvm::SwitchInst>(I)) // whose operands are counted for themselves
    return Token;
  for (const llvm::Use &Operand : I.operands())
    if (const auto *Address = llvm::dyn_cast<llvm::GEPOperator>(Operand); Address && isFoldedAddress(Address))
      Token += "." + addressClass(*Address, Layout, &llvm::GEPOperator::collectOffset);
    else if (!llvm::isa<llvm::BasicBlock>(Operand))
      Token += "." + valueClass(Operand);
  if (const auto *Compare = llvm::dyn_cast<llvm::ICmpInst>(&I))
    Token += Compare->isEquality() ? ".eq" : ".ord";
  const auto *User = I.hasOneUse() ? llvm::cast<llvm::Instruction>(*I.user_begin()) : nullptr;
  if (User && User->getParent() == I.getParent() && llvm::isa<llvm::CmpInst, llvm::LoadInst, llvm::BinaryOperator>(I))
    Token += std::string(">") + User->getOpcodeName();
  return Token;
}

inline void countCall(const llvm::CallBase &Call, const llvm::DataLayout &Layout, FunctionFeatures &Features) {
  constexpr unsigned kArgumentRegisters = 6;
  if (const auto *Intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&Call)) {
    std::string Name = "tok." + llvm::Intrinsic::getBaseName(Intrinsic->getIntrinsicID()).str() + tokenOf(Call, Layout);
    if (const auto *Memory = llvm::dyn_cast<llvm::MemIntrinsic>(&Call)) {
      const auto *Length = llvm::dyn_cast<llvm::ConstantInt>(Memory->getLength());
      const uint64_t Bytes = Length ? Length->getLimitedValue(256) : 256;
      Name += "." + (Length ? std::to_string(llvm::PowerOf2Ceil(Bytes)) : "call") + "." +
              (llvm::isPowerOf2_64(Bytes) ? "" : "odd.") + valueClass(Memory->getArgOperand(1));
    }
    ++Features[Name];
    return;
  }
  const auto *Plain = llvm::dyn_cast<llvm::CallInst>(&Call);
  const bool IsTail = Plain && Plain->isTailCall() && llvm::isa<llvm::ReturnInst>(Call.getNextNode());
  ++Features[std::string("tok.") + Call.getOpcodeName() +
             (Call.isInlineAsm() ? ".asm" : "." + valueClass(Call.getCalledOperand())) + (IsTail ? ".tail" : "") +
             (Call.use_empty() ? "" : ".used")];
  for (const llvm::Use &Argument : Call.args()) {
    const unsigned Number = Call.getArgOperandNo(&Argument);
    const auto *Parameter = llvm::dyn_cast<llvm::Argument>(Argument);
    ++Features["tok.arg." + typeClass(Argument->getType(), Layout) + "." + valueClass(Argument) +
               (Parameter && Parameter->getArgNo() == Number ? ".same" : "") +
               (Number >= kArgumentRegisters ? ".pushed" : "") + (Call.isByValArgument(Number) ? ".byval" : "")];
  }
}

// Linkage, attributes, parameters and the stack frame.
inline void countFunction(const llvm::Function &F, const llvm::DataLayout &Layout, FunctionFeatures &Features) {
  Features["fn"] = 1;
  Features["fn.linkage" + std::to_string(linkageOf(F))] = 1;
  for (const llvm::Attribute Each : F.getAttributes().getFnAttrs())
    if (!Each.isStringAttribute())
      Features["fn." + llvm::Attribute::getNameFromAttrKind(Each.getKindAsEnum()).str()] = 1;
  Features["fn.frame-pointer-" + F.getFnAttribute("frame-pointer").getValueAsString().str()] = 1;
  Features["fn.avx"] = F.getFnAttribute("target-features").getValueAsString().contains("+avx");
  Features["fn.personality"] = F.hasPersonalityFn();
  Features["fn.vararg"] = F.isVarArg();
  Features["fn.is_pic"] = F.getParent()->getPICLevel() != 0 && F.getParent()->getPIELevel() == 0;
  for (const llvm::Argument &A : F.args())
    ++Features["fn.parameters." + typeClass(A.getType(), Layout) + (A.hasByValAttr() ? ".byval" : "")];
  for (const llvm::Instruction &I : instructions(F))
    if (const auto *Slot = llvm::dyn_cast<llvm::AllocaInst>(&I))
      Features["fn.frame_bytes"] += double(Layout.getTypeAllocSize(Slot->getAllocatedType()).getKnownMinValue());
  Features["fn.frame_over128"] = Features["fn.frame_bytes"] > 128;
}

inline void countSwitch(const llvm::SwitchInst &Switch, FunctionFeatures &Features) {
  int64_t Least = INT64_MAX, Most = INT64_MIN;
  for (const auto &Case : Switch.cases()) {
    const int64_t Value = Case.getCaseValue()->getValue().sextOrTrunc(64).getSExtValue();
    Least = std::min(Least, Value);
    Most = std::max(Most, Value);
  }
  const auto Cases = double(Switch.getNumCases());
  const bool IsTable = Cases >= 4 && 10 * Cases >= 4 * (double(Most) - double(Least) + 1);
  Features[IsTable ? "tok.switch.cases.table" : "tok.switch.cases"] += Cases;
}

// Estimates how many values, in integer and in other registers, are alive at a time. A value lives from its definition to
// its last use in the order of the blocks; what is alive where a loop begins, and is used in it, lives to the loop's end.
inline void countLiveValues(const llvm::Function &F, FunctionFeatures &Features) {
  constexpr size_t kMaxLoops = 400;
  struct Range {
    int64_t Begin, End, Uses = 0;
  };
  llvm::DenseMap<const llvm::Value *, Range> Ranges;
  llvm::DenseMap<const llvm::BasicBlock *, Range> Blocks;
  std::vector<std::pair<int64_t, int64_t>> Loops; // end, beginning
  std::vector<int64_t> Calls;
  int64_t Position = 1; // 0: where parameters are defined
  for (const llvm::Argument &A : F.args())
    Ranges[&A] = {0, 0};
  for (const llvm::BasicBlock &BB : F) {
    Blocks[&BB] = {Position, Position + int64_t(BB.size()) - 1};
    for (const llvm::Instruction &I : BB) {
      const bool IsFused = llvm::isa<llvm::CmpInst>(I) && I.hasOneUse();
      if (!I.getType()->isVoidTy() && !IsFused && !llvm::isa<llvm::AllocaInst>(I) && !isFoldedAddress(&I))
        Ranges[&I] = {Position, Position};
      if (llvm::isa<llvm::CallBase>(I) && !llvm::isa<llvm::IntrinsicInst>(I))
        Calls.push_back(Position);
      ++Position;
    }
    for (const llvm::BasicBlock *Target : successors(&BB))
      if (Blocks.count(Target) && Loops.size() < kMaxLoops)
        Loops.emplace_back(Position - 1, Blocks[Target].Begin);
  }
  const int64_t End = std::exchange(Position, 1);
  for (const llvm::Instruction &I : instructions(F)) {
    for (const llvm::Use &Use : I.operands())
      if (const auto Found = Ranges.find(Use); Found != Ranges.end()) {
        const auto *Phi = llvm::dyn_cast<llvm::PHINode>(&I);
        Found->second.End = std::max(Found->second.End, Phi ? Blocks[Phi->getIncomingBlock(Use)].End : Position);
        ++Found->second.Uses;
      }
    ++Position;
  }
  std::sort(Loops.begin(), Loops.end());
  for (const bool IsInteger : {true, false}) {
    const std::string Name = IsInteger ? "live.int." : "live.float.";
    // How many more are alive behind an instruction than behind the one before, of all and of those that calls cross.
    std::vector<int64_t> Change(size_t(End) + 1), CrossingChange(size_t(End) + 1);
    for (auto &[Value, Found] : Ranges) {
      if ((Value->getType()->isFPOrFPVectorTy() || Value->getType()->isVectorTy()) == IsInteger)
        continue;
      for (const auto &[LoopEnd, LoopBegin] : Loops)
        if (Found.Begin < LoopBegin && Found.End >= LoopBegin && Found.End < LoopEnd)
          Found.End = LoopEnd;
      ++Change[size_t(Found.Begin)], --Change[size_t(Found.End)];
      const auto Next = std::upper_bound(Calls.begin(), Calls.end(), Found.Begin);
      if (Next == Calls.end() || *Next >= Found.End)
        continue;
      ++CrossingChange[size_t(Found.Begin)], --CrossingChange[size_t(Found.End)];
      ++Features[Name + "crossing"];
      Features[Name + "crossing_uses"] += double(Found.Uses);
    }
    int64_t Alive = 0, Crossing = 0, Most = 0, Across = 0;
    for (int64_t Index = 0; Index < End; ++Index) {
      Most = std::max(Most, Alive += Change[size_t(Index)]);
      Crossing += CrossingChange[size_t(Index)];
      if (std::binary_search(Calls.begin(), Calls.end(), Index))
        Across = std::max(Across, Crossing);
      Features[Name + "mean"] += double(Alive) / double(End);
      for (const int64_t Registers : {5, 8, 13}) // beyond which another kind of register is taken
        Features[Name + "over" + std::to_string(Registers)] += double(std::max<int64_t>(Alive - Registers, 0));
    }
    Features[Name + "max"] = double(Most);
    Features[Name + "across"] = double(Across);
    Features[Name + "saved"] = double(std::min<int64_t>(Across, 6));
    Features[Name + "spilled_across"] = double(std::max<int64_t>(Across - 6, 0));
  }
}

inline FunctionFeatures functionFeatures(llvm::Function &F, llvm::FunctionAnalysisManager &FAM) {
  constexpr int64_t kFarInstructions = 35; // beyond which the offset of a jump takes more than a byte, on most machines
  const llvm::DataLayout &Layout = F.getParent()->getDataLayout();
  const auto &Target = FAM.getResult<llvm::TargetIRAnalysis>(F);
  FunctionFeatures Features;
  countFunction(F, Layout, Features);
  llvm::DenseMap<const llvm::Value *, int64_t> Positions;
  for (const llvm::BasicBlock &BB : F) {
    ++Features["blocks"];
    Positions[&BB] = int64_t(Positions.size());
    for (const llvm::Instruction &I : BB)
      Positions[&I] = int64_t(Positions.size());
  }
  for (const llvm::Instruction &I : instructions(F)) {
    const auto *Intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&I);
    if (Intrinsic && Intrinsic->isAssumeLikeIntrinsic())
      continue;
    const std::string Opcode = I.getOpcodeName();
    ++Features["op"];
    ++Features["op." + Opcode];
    const llvm::InstructionCost Cost = Target.getInstructionCost(&I, llvm::TargetTransformInfo::TCK_CodeSize);
    if (Cost.isValid())
      Features["cost." + Opcode] += double(std::optional<int64_t>(Cost.getValue()).value_or(0));
    if (const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I))
      countCall(*Call, Layout, Features);
    else
      ++Features["tok." + Opcode + tokenOf(I, Layout)];
    if (const auto *Phi = llvm::dyn_cast<llvm::PHINode>(&I))
      for (const llvm::Value *Each : Phi->incoming_values())
        ++Features["tok.phi.in." + valueClass(Each)];
    if (const auto *Switch = llvm::dyn_cast<llvm::SwitchInst>(&I))
      countSwitch(*Switch, Features);
    else if (I.isTerminator())
      for (const llvm::BasicBlock *Target : successors(&I))
        if (Target != I.getParent()->getNextNode())
          ++Features[std::abs(Positions[Target] - Positions[&I]) > kFarInstructions ? "tok.jump.far" : "tok.jump"];
  }
  countLiveValues(F, Features);
  // LLVM prints its own as lines `Name: value`.
  std::string Text;
  llvm::raw_string_ostream Stream(Text);
  llvm::FunctionPropertiesInfo::getFunctionPropertiesInfo(F, FAM).print(Stream);
  llvm::SmallVector<llvm::StringRef, 64> Lines;
  llvm::StringRef(Stream.str()).split(Lines, '\n', -1, /*KeepEmpty=*/false);
  for (const llvm::StringRef Line : Lines)
    Line.split(": ").second.getAsDouble(Features[("prop." + Line.split(": ").first).str()]);
  return Features;
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_
