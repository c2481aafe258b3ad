// What the choice of a function's options looks at: counts over its IR when code is generated for it.
//
//   FunctionFeatures Features;
//   Features.count(function, dominator tree);
//   Features.values()[i] is what Names[i] says

#ifndef COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_
#define COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace compiler_opt {

#define COMPILER_OPT_FUNCTION_FEATURES(FEATURE)                                                                          \
  /* the function */                                                                                                     \
  FEATURE(arguments)                                                                                                     \
  FEATURE(used_arguments)                                                                                                \
  FEATURE(returns_value)                                                                                                 \
  FEATURE(is_local)                                                                                                      \
  FEATURE(is_linkonce)                                                                                                   \
  FEATURE(is_cold)                                                                                                       \
  FEATURE(may_unwind)                                                                                                    \
  FEATURE(is_variadic)                                                                                                   \
  FEATURE(instructions)                                                                                                  \
  /* control flow */                                                                                                     \
  FEATURE(blocks)                                                                                                        \
  FEATURE(edges)                                                                                                         \
  FEATURE(critical_edges)                                                                                                \
  FEATURE(conditional_branches)                                                                                          \
  FEATURE(switches)                                                                                                      \
  FEATURE(switch_cases)                                                                                                  \
  FEATURE(switch_range)                                                                                                  \
  FEATURE(returns)                                                                                                       \
  FEATURE(unreachables)                                                                                                  \
  FEATURE(small_blocks)                                                                                                  \
  FEATURE(empty_blocks)                                                                                                  \
  FEATURE(single_predecessor_blocks)                                                                                     \
  FEATURE(many_predecessor_blocks)                                                                                       \
  FEATURE(landing_pads)                                                                                                  \
  FEATURE(entry_instructions)                                                                                            \
  FEATURE(largest_block)                                                                                                 \
  FEATURE(calls_in_entry)                                                                                                \
  FEATURE(early_exits)                                                                                                   \
  /* loops */                                                                                                            \
  FEATURE(loops)                                                                                                         \
  FEATURE(innermost_loops)                                                                                               \
  FEATURE(loop_depth)                                                                                                    \
  FEATURE(single_block_loops)                                                                                            \
  FEATURE(loop_blocks)                                                                                                   \
  FEATURE(loop_instructions)                                                                                             \
  FEATURE(loop_calls)                                                                                                    \
  FEATURE(loop_phis)                                                                                                     \
  FEATURE(loop_memory)                                                                                                   \
  FEATURE(loop_addresses)                                                                                                \
  FEATURE(loop_invariant_operands)                                                                                       \
  FEATURE(loop_casts)                                                                                                    \
  FEATURE(loop_pointer_phis)                                                                                             \
  FEATURE(loop_wide_phis)                                                                                                \
  FEATURE(loop_multiplications)                                                                                          \
  FEATURE(loop_shifts)                                                                                                   \
  FEATURE(loop_additions)                                                                                                \
  FEATURE(loop_phi_steps)                                                                                                \
  FEATURE(loop_constant_addresses)                                                                                       \
  FEATURE(loop_scaled_addresses)                                                                                         \
  FEATURE(loop_odd_addresses)                                                                                            \
  FEATURE(loop_phi_addresses)                                                                                            \
  FEATURE(loop_compares_of_phis)                                                                                         \
  FEATURE(loop_compares_of_steps)                                                                                        \
  FEATURE(loop_compares_of_constants)                                                                                    \
  FEATURE(loop_extended_phis)                                                                                            \
  FEATURE(loop_phi_uses)                                                                                                 \
  FEATURE(nested_loop_memory)                                                                                            \
  FEATURE(loop_exits)                                                                                                    \
  FEATURE(loops_without_preheader)                                                                                          \
  /* instructions */                                                                                                     \
  FEATURE(adds)                                                                                                          \
  FEATURE(add_constants)                                                                                                 \
  FEATURE(subtractions)                                                                                                  \
  FEATURE(multiplications)                                                                                               \
  FEATURE(divisions)                                                                                                     \
  FEATURE(shifts)                                                                                                        \
  FEATURE(variable_shifts)                                                                                               \
  FEATURE(ands)                                                                                                          \
  FEATURE(ors)                                                                                                           \
  FEATURE(xors)                                                                                                          \
  FEATURE(integer_compares)                                                                                              \
  FEATURE(zero_compares)                                                                                                 \
  FEATURE(compares_used_elsewhere)                                                                                       \
  FEATURE(float_compares)                                                                                                \
  FEATURE(float_operations)                                                                                              \
  FEATURE(selects)                                                                                                       \
  FEATURE(phis)                                                                                                          \
  FEATURE(phi_operands)                                                                                                  \
  FEATURE(phi_constants)                                                                                                 \
  FEATURE(zero_extensions)                                                                                               \
  FEATURE(sign_extensions)                                                                                               \
  FEATURE(truncations)                                                                                                   \
  FEATURE(other_casts)                                                                                                   \
  FEATURE(casts_used_elsewhere)                                                                                          \
  FEATURE(vector_instructions)                                                                                           \
  FEATURE(aggregates)                                                                                                    \
  FEATURE(atomics)                                                                                                       \
  /* memory */                                                                                                           \
  FEATURE(loads)                                                                                                         \
  FEATURE(narrow_loads)                                                                                                  \
  FEATURE(repeated_loads)                                                                                                \
  FEATURE(single_use_loads)                                                                                              \
  FEATURE(extended_loads)                                                                                                \
  FEATURE(stores)                                                                                                        \
  FEATURE(constant_stores)                                                                                               \
  FEATURE(narrow_stores)                                                                                                 \
  FEATURE(updates)                                                                                                       \
  FEATURE(allocas)                                                                                                       \
  FEATURE(alloca_bytes)                                                                                                  \
  FEATURE(global_accesses)                                                                                               \
  FEATURE(addresses)                                                                                                     \
  FEATURE(constant_addresses)                                                                                            \
  FEATURE(scaled_addresses)                                                                                              \
  FEATURE(addresses_used_elsewhere)                                                                                      \
  FEATURE(address_uses_elsewhere)                                                                                        \
  FEATURE(large_offsets)                                                                                                 \
  FEATURE(address_chains)                                                                                                \
  FEATURE(addresses_not_for_memory)                                                                                      \
  /* calls */                                                                                                            \
  FEATURE(calls)                                                                                                         \
  FEATURE(local_calls)                                                                                                   \
  FEATURE(indirect_calls)                                                                                                \
  FEATURE(invokes)                                                                                                       \
  FEATURE(tail_calls)                                                                                                    \
  FEATURE(calls_before_return)                                                                                           \
  FEATURE(call_arguments)                                                                                                \
  FEATURE(constant_arguments)                                                                                            \
  FEATURE(calls_with_stack_arguments)                                                                                    \
  FEATURE(stack_arguments)                                                                                               \
  FEATURE(byval_arguments)                                                                                               \
  FEATURE(used_results)                                                                                                  \
  FEATURE(noreturn_calls)                                                                                                \
  FEATURE(memory_intrinsics)                                                                                             \
  FEATURE(lifetime_markers)                                                                                              \
  FEATURE(minmax_intrinsics)                                                                                             \
  FEATURE(overflow_intrinsics)                                                                                           \
  FEATURE(other_intrinsics)                                                                                              \
  FEATURE(inline_assembly)                                                                                               \
  /* constants and values */                                                                                             \
  FEATURE(immediates)                                                                                                    \
  FEATURE(wide_immediates)                                                                                               \
  FEATURE(huge_immediates)                                                                                               \
  FEATURE(repeated_immediates)                                                                                           \
  FEATURE(float_constants)                                                                                               \
  FEATURE(global_operands)                                                                                               \
  FEATURE(distinct_globals)                                                                                              \
  FEATURE(narrow_values)                                                                                                 \
  FEATURE(int32_values)                                                                                                  \
  FEATURE(int64_values)                                                                                                  \
  FEATURE(pointer_values)                                                                                                \
  FEATURE(float_values)                                                                                                  \
  FEATURE(values_used_elsewhere)                                                                                         \
  FEATURE(uses_elsewhere)                                                                                                \
  FEATURE(values_across_calls)                                                                                           \
  FEATURE(arguments_used_elsewhere)                                                                                        \
  FEATURE(many_use_values)                                                                                               \
  FEATURE(destructive_operations)                                                                                        \
  FEATURE(both_operands_live)                                                                                            \
  FEATURE(common_subexpressions)

class FunctionFeatures {
public:
#define COMPILER_OPT_NAME(Name) #Name,
  static constexpr std::array Names = {COMPILER_OPT_FUNCTION_FEATURES(COMPILER_OPT_NAME)};
#undef COMPILER_OPT_NAME
  static constexpr size_t kNumFeatures = Names.size();
  using Values = std::array<int64_t, kNumFeatures>;

  // Counts over a function, whose dominator tree it gets.
  void count(const llvm::Function &F, const llvm::DominatorTree &Tree) {
    const llvm::LoopInfo Loops(Tree);
    countFunction(F);
    countLoops(Loops);
    for (const llvm::BasicBlock &BB : F)
      countBlock(BB, Loops.getLoopFor(&BB));
    for (const auto &[Constant, Uses] : Immediates)
      at(repeated_immediates) += Uses - 1;
    at(distinct_globals) = static_cast<int64_t>(Globals.size());
  }

  const Values &values() const { return Counted; }

private:
  enum Feature {
#define COMPILER_OPT_MEMBER(Name) Name,
    COMPILER_OPT_FUNCTION_FEATURES(COMPILER_OPT_MEMBER)
#undef COMPILER_OPT_MEMBER
  };

  int64_t &at(Feature Name) { return Counted[Name]; }

  static bool isElsewhere(const llvm::User *User, const llvm::BasicBlock *BB) {
    const auto *I = llvm::dyn_cast<llvm::Instruction>(User);
    return I && I->getParent() != BB;
  }

  // Whether one of the first few users of its first operand is the same instruction.
  static bool isRepeated(const llvm::Instruction &I) {
    size_t Seen = 0;
    for (const llvm::User *User : I.getOperand(0)->users()) {
      const auto *Other = llvm::dyn_cast<llvm::Instruction>(User);
      if (Other && Other != &I && Other->isIdenticalTo(&I))
        return true;
      if (++Seen == 16)
        break;
    }
    return false;
  }

  static bool isRealCall(const llvm::Instruction &I) {
    return llvm::isa<llvm::CallBase>(I) && !llvm::isa<llvm::IntrinsicInst>(I);
  }

  void countFunction(const llvm::Function &F) {
    at(arguments) = static_cast<int64_t>(F.arg_size());
    at(returns_value) = !F.getReturnType()->isVoidTy();
    at(is_local) = F.hasLocalLinkage();
    at(is_linkonce) = F.hasLinkOnceLinkage();
    at(is_cold) = F.hasFnAttribute(llvm::Attribute::Cold);
    at(may_unwind) = !F.doesNotThrow();
    at(is_variadic) = F.isVarArg();
    for (const llvm::Argument &Argument : F.args()) {
      at(used_arguments) += !Argument.use_empty();
      at(arguments_used_elsewhere) += std::any_of(Argument.user_begin(), Argument.user_end(), [&](const llvm::User *User) {
        return isElsewhere(User, &F.getEntryBlock());
      });
    }
    at(blocks) = static_cast<int64_t>(F.size());
  }

  void countLoops(const llvm::LoopInfo &Loops) {
    for (const llvm::Loop *Loop : Loops.getLoopsInPreorder()) {
      ++at(loops);
      at(innermost_loops) += Loop->isInnermost();
      at(single_block_loops) += Loop->getNumBlocks() == 1;
      at(loop_depth) = std::max(at(loop_depth), static_cast<int64_t>(Loop->getLoopDepth()));
      llvm::SmallVector<llvm::BasicBlock *, 4> Exiting;
      Loop->getExitingBlocks(Exiting);
      at(loop_exits) += static_cast<int64_t>(Exiting.size());
      at(loops_without_preheader) += !Loop->getLoopPreheader();
      for (const llvm::PHINode &Phi : Loop->getHeader()->phis())
        countPhiOfLoop(Phi, *Loop);
    }
  }

  // What strength reduction looks at: values that change with each iteration, and what is computed from them.
  void countPhiOfLoop(const llvm::PHINode &Phi, const llvm::Loop &Loop) {
    ++at(loop_phis);
    at(loop_pointer_phis) += Phi.getType()->isPointerTy();
    at(loop_wide_phis) += Phi.getType()->isIntegerTy() && Phi.getType()->getIntegerBitWidth() > 32;
    const auto IsStep = [&](const llvm::User *User) {
      return llvm::is_contained(Phi.incoming_values(), User) &&
             llvm::isa<llvm::BinaryOperator, llvm::GetElementPtrInst>(User);
    };
    for (const llvm::User *User : Phi.users()) {
      const auto *I = llvm::cast<llvm::Instruction>(User);
      if (!Loop.contains(I))
        continue;
      ++at(loop_phi_uses);
      at(loop_phi_addresses) += llvm::isa<llvm::GetElementPtrInst>(I);
      at(loop_compares_of_phis) += llvm::isa<llvm::ICmpInst>(I);
      at(loop_extended_phis) += llvm::isa<llvm::ZExtInst, llvm::SExtInst>(I);
      if (!IsStep(I))
        continue;
      ++at(loop_phi_steps);
      for (const llvm::User *Next : I->users())
        if (const auto *Compare = llvm::dyn_cast<llvm::ICmpInst>(Next)) {
          ++at(loop_compares_of_steps);
          at(loop_compares_of_constants) += llvm::isa<llvm::Constant>(Compare->getOperand(1));
        }
    }
  }

  void countBlock(const llvm::BasicBlock &BB, const llvm::Loop *Loop) {
    const auto Size = static_cast<int64_t>(BB.sizeWithoutDebug());
    at(instructions) += Size;
    at(small_blocks) += Size <= 3;
    at(empty_blocks) += Size <= 1;
    at(largest_block) = std::max(at(largest_block), Size);
    const auto Predecessors = static_cast<int64_t>(std::distance(pred_begin(&BB), pred_end(&BB)));
    at(single_predecessor_blocks) += Predecessors == 1;
    at(many_predecessor_blocks) += Predecessors > 2;
    at(landing_pads) += BB.isLandingPad();
    if (BB.isEntryBlock())
      at(entry_instructions) = Size;
    if (Loop) {
      ++at(loop_blocks);
      at(loop_instructions) += Size;
    }
    countTerminator(BB);
    bool HasCall = false;
    llvm::SmallPtrSet<const llvm::Value *, 16> Loaded;
    llvm::SmallPtrSet<const llvm::Value *, 16> SinceCall; // defined in this block after its last call
    for (const llvm::Instruction &I : BB) {
      if (I.isDebugOrPseudoInst())
        continue;
      countOperands(I, Loop);
      countResult(I);
      countInstruction(I, Loop, Loaded);
      for (const llvm::Value *Operand : I.operand_values())
        if (HasCall && llvm::isa<llvm::Instruction>(Operand) && !SinceCall.contains(Operand) &&
            llvm::cast<llvm::Instruction>(Operand)->getParent() == &BB && !llvm::isa<llvm::PHINode>(I))
          ++at(values_across_calls);
      if (isRealCall(I)) {
        HasCall = true;
        SinceCall.clear();
        Loaded.clear();
        at(calls_in_entry) += BB.isEntryBlock();
        at(loop_calls) += Loop != nullptr;
      }
      SinceCall.insert(&I);
    }
  }

  void countTerminator(const llvm::BasicBlock &BB) {
    const llvm::Instruction &Last = *BB.getTerminator();
    const unsigned Successors = Last.getNumSuccessors();
    at(edges) += Successors;
    if (Successors > 1)
      for (const llvm::BasicBlock *Successor : successors(&BB))
        at(critical_edges) += !Successor->getSinglePredecessor();
    if (const auto *Switch = llvm::dyn_cast<llvm::SwitchInst>(&Last)) {
      ++at(switches);
      at(switch_cases) += Switch->getNumCases();
      if (Switch->getNumCases()) {
        llvm::APInt Low = Switch->case_begin()->getCaseValue()->getValue(), High = Low;
        for (const auto &Case : Switch->cases()) {
          Low = llvm::APIntOps::smin(Low, Case.getCaseValue()->getValue());
          High = llvm::APIntOps::smax(High, Case.getCaseValue()->getValue());
        }
        at(switch_range) += static_cast<int64_t>((High - Low).getLimitedValue(1 << 20)) + 1;
      }
    } else if (llvm::isa<llvm::ReturnInst>(Last)) {
      ++at(returns);
      for (const llvm::BasicBlock *Before : predecessors(&BB))
        at(early_exits) += Before->isEntryBlock();
      if (const llvm::Instruction *Before = Last.getPrevNode())
        at(calls_before_return) += isRealCall(*Before);
    } else if (llvm::isa<llvm::UnreachableInst>(Last)) {
      ++at(unreachables);
    } else if (Successors == 2 && !llvm::isa<llvm::InvokeInst>(Last)) {
      ++at(conditional_branches);
    }
  }

  void countOperands(const llvm::Instruction &I, const llvm::Loop *Loop) {
    for (const llvm::Value *Operand : I.operand_values()) {
      if (const auto *Number = llvm::dyn_cast<llvm::ConstantInt>(Operand)) {
        if (llvm::isa<llvm::GetElementPtrInst, llvm::SwitchInst, llvm::AllocaInst>(I))
          continue;
        const llvm::APInt &Value = Number->getValue();
        if (Value.isZero())
          continue;
        ++at(immediates);
        at(wide_immediates) += !Value.isSignedIntN(8);
        at(huge_immediates) += !Value.isSignedIntN(32);
        if (!Value.isSignedIntN(8))
          ++Immediates[Number];
      } else if (llvm::isa<llvm::ConstantFP>(Operand)) {
        ++at(float_constants);
      } else if (llvm::isa<llvm::GlobalValue, llvm::ConstantExpr>(Operand)) {
        const llvm::Value *const Base = Operand->stripInBoundsConstantOffsets();
        const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I);
        if (Call && Call->getCalledOperand() == Operand)
          continue;
        ++at(global_operands);
        Globals.insert(Base);
      } else if (Loop) {
        const auto *Defined = llvm::dyn_cast<llvm::Instruction>(Operand);
        at(loop_invariant_operands) +=
            llvm::isa<llvm::Argument>(Operand) || (Defined && !Loop->contains(Defined->getParent()));
      }
    }
  }

  void countResult(const llvm::Instruction &I) {
    const llvm::Type *const Type = I.getType();
    if (Type->isVoidTy())
      return;
    if (Type->isIntegerTy()) {
      const unsigned Bits = Type->getIntegerBitWidth();
      ++at(Bits < 32 ? narrow_values : Bits == 32 ? int32_values : int64_values);
    } else if (Type->isPointerTy()) {
      ++at(pointer_values);
    } else if (Type->isFloatingPointTy()) {
      ++at(float_values);
    } else if (Type->isVectorTy()) {
      ++at(vector_instructions);
    }
    int64_t Elsewhere = 0, Uses = 0;
    for (const llvm::User *User : I.users()) {
      ++Uses;
      Elsewhere += isElsewhere(User, I.getParent());
    }
    at(values_used_elsewhere) += Elsewhere != 0;
    at(uses_elsewhere) += Elsewhere;
    at(many_use_values) += Uses > 3;
    if (llvm::isa<llvm::CmpInst>(I))
      at(compares_used_elsewhere) += Elsewhere != 0;
    if (llvm::isa<llvm::CastInst>(I))
      at(casts_used_elsewhere) += Elsewhere != 0;
    if (llvm::isa<llvm::GetElementPtrInst>(I)) {
      at(addresses_used_elsewhere) += Elsewhere != 0;
      at(address_uses_elsewhere) += Elsewhere;
    }
    if (llvm::isa<llvm::BinaryOperator>(I)) {
      // x86 overwrites an operand, so one that is used again has to be copied.
      const auto IsLive = [](const llvm::Value *Operand) {
        return !llvm::isa<llvm::Constant>(Operand) && !Operand->hasOneUse();
      };
      at(destructive_operations) += IsLive(I.getOperand(0));
      at(both_operands_live) += IsLive(I.getOperand(0)) && IsLive(I.getOperand(1));
      // The same operation on the same operands in another block.
      at(common_subexpressions) += !llvm::isa<llvm::Constant>(I.getOperand(0)) && isRepeated(I);
    }
  }

  static bool isNarrow(const llvm::Type *Type) { return Type->isIntegerTy() && Type->getIntegerBitWidth() < 32; }

  void countInstruction(const llvm::Instruction &I, const llvm::Loop *Loop,
                        llvm::SmallPtrSetImpl<const llvm::Value *> &Loaded) {
    if (const auto *Call = llvm::dyn_cast<llvm::CallBase>(&I))
      return countCall(*Call);
    if (const auto *Load = llvm::dyn_cast<llvm::LoadInst>(&I)) {
      ++at(loads);
      at(narrow_loads) += isNarrow(Load->getType());
      at(repeated_loads) += !Loaded.insert(Load->getPointerOperand()).second;
      at(global_accesses) += llvm::isa<llvm::Constant>(Load->getPointerOperand());
      at(single_use_loads) += Load->hasOneUse();
      at(extended_loads) += Load->hasOneUse() && llvm::isa<llvm::ZExtInst, llvm::SExtInst>(*Load->user_begin());
      at(atomics) += Load->isAtomic();
      countLoopMemory(Loop);
    } else if (const auto *Store = llvm::dyn_cast<llvm::StoreInst>(&I)) {
      ++at(stores);
      at(constant_stores) += llvm::isa<llvm::Constant>(Store->getValueOperand());
      at(narrow_stores) += isNarrow(Store->getValueOperand()->getType());
      at(global_accesses) += llvm::isa<llvm::Constant>(Store->getPointerOperand());
      at(updates) += Loaded.contains(Store->getPointerOperand());
      at(atomics) += Store->isAtomic();
      countLoopMemory(Loop);
    } else if (const auto *Address = llvm::dyn_cast<llvm::GetElementPtrInst>(&I)) {
      countAddress(*Address, Loop);
    } else if (const auto *Phi = llvm::dyn_cast<llvm::PHINode>(&I)) {
      ++at(phis);
      at(phi_operands) += Phi->getNumIncomingValues();
      for (const llvm::Value *Value : Phi->incoming_values())
        at(phi_constants) += llvm::isa<llvm::Constant>(Value);
    } else if (const auto *Compare = llvm::dyn_cast<llvm::ICmpInst>(&I)) {
      ++at(integer_compares);
      const auto *Constant = llvm::dyn_cast<llvm::Constant>(Compare->getOperand(1));
      at(zero_compares) += Constant && Constant->isNullValue();
    } else if (const auto *Alloca = llvm::dyn_cast<llvm::AllocaInst>(&I)) {
      ++at(allocas);
      if (const auto Size = Alloca->getAllocationSize(I.getModule()->getDataLayout()); Size && !Size->isScalable())
        at(alloca_bytes) += static_cast<int64_t>(std::min<uint64_t>(Size->getFixedValue(), 1 << 20));
    } else if (llvm::isa<llvm::CastInst>(I)) {
      ++at(llvm::isa<llvm::ZExtInst>(I)    ? zero_extensions
           : llvm::isa<llvm::SExtInst>(I)  ? sign_extensions
           : llvm::isa<llvm::TruncInst>(I) ? truncations
                                           : other_casts);
      at(loop_casts) += Loop != nullptr;
    } else if (llvm::isa<llvm::BinaryOperator>(I)) {
      countBinary(I, Loop);
    } else {
      at(float_compares) += llvm::isa<llvm::FCmpInst>(I);
      at(float_operations) += I.getOpcode() == llvm::Instruction::FNeg;
      at(selects) += llvm::isa<llvm::SelectInst>(I);
      at(aggregates) += llvm::isa<llvm::ExtractValueInst, llvm::InsertValueInst>(I);
      at(atomics) += llvm::isa<llvm::AtomicRMWInst, llvm::AtomicCmpXchgInst, llvm::FenceInst>(I);
    }
  }

  void countLoopMemory(const llvm::Loop *Loop) {
    at(loop_memory) += Loop != nullptr;
    at(nested_loop_memory) += Loop && Loop->getLoopDepth() > 1;
  }

  void countBinary(const llvm::Instruction &I, const llvm::Loop *Loop) {
    const bool HasConstant = llvm::isa<llvm::Constant>(I.getOperand(1));
    at(loop_multiplications) += Loop && I.getOpcode() == llvm::Instruction::Mul;
    at(loop_shifts) += Loop && I.getOpcode() == llvm::Instruction::Shl;
    at(loop_additions) += Loop && I.getOpcode() == llvm::Instruction::Add;
    switch (I.getOpcode()) {
    case llvm::Instruction::Add:
      ++at(adds);
      at(add_constants) += HasConstant;
      break;
    case llvm::Instruction::Sub:
      ++at(subtractions);
      break;
    case llvm::Instruction::Mul:
      ++at(multiplications);
      break;
    case llvm::Instruction::And:
      ++at(ands);
      break;
    case llvm::Instruction::Or:
      ++at(ors);
      break;
    case llvm::Instruction::Xor:
      ++at(xors);
      break;
    case llvm::Instruction::Shl:
    case llvm::Instruction::LShr:
    case llvm::Instruction::AShr:
      ++at(shifts);
      at(variable_shifts) += !HasConstant;
      break;
    case llvm::Instruction::UDiv:
    case llvm::Instruction::SDiv:
    case llvm::Instruction::URem:
    case llvm::Instruction::SRem:
      ++at(divisions);
      break;
    default:
      ++at(float_operations);
    }
  }

  void countAddress(const llvm::GetElementPtrInst &Address, const llvm::Loop *Loop) {
    ++at(addresses);
    const bool IsConstant = Address.hasAllConstantIndices();
    if (Loop) {
      // A factor of 1, 2, 4 or 8 is part of x86's addresses.
      const uint64_t Bytes = Address.getModule()->getDataLayout().getTypeAllocSize(Address.getResultElementType());
      const bool IsFactor = Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8;
      ++at(loop_addresses);
      ++at(IsConstant ? loop_constant_addresses : IsFactor ? loop_scaled_addresses : loop_odd_addresses);
    }
    at(constant_addresses) += IsConstant;
    at(scaled_addresses) += !IsConstant;
    at(address_chains) += llvm::isa<llvm::GetElementPtrInst>(Address.getPointerOperand());
    const llvm::DataLayout &Layout = Address.getModule()->getDataLayout();
    llvm::APInt Offset(Layout.getIndexTypeSizeInBits(Address.getType()), 0);
    if (IsConstant && !Address.getType()->isVectorTy() && Address.accumulateConstantOffset(Layout, Offset))
      at(large_offsets) += !Offset.isSignedIntN(8);
    for (const llvm::User *User : Address.users()) {
      const auto *Store = llvm::dyn_cast<llvm::StoreInst>(User);
      at(addresses_not_for_memory) += !llvm::isa<llvm::LoadInst>(User) && !(Store && Store->getValueOperand() != &Address);
    }
  }

  void countCall(const llvm::CallBase &Call) {
    if (const auto *Intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&Call)) {
      ++at(llvm::isa<llvm::MemIntrinsic>(Intrinsic)           ? memory_intrinsics
           : Intrinsic->isLifetimeStartOrEnd()                ? lifetime_markers
           : llvm::isa<llvm::MinMaxIntrinsic>(Intrinsic)      ? minmax_intrinsics
           : llvm::isa<llvm::BinaryOpIntrinsic>(Intrinsic)    ? overflow_intrinsics
                                                              : other_intrinsics);
      return;
    }
    if (Call.isInlineAsm()) {
      ++at(inline_assembly);
      return;
    }
    ++at(calls);
    const llvm::Function *const Callee = Call.getCalledFunction();
    at(indirect_calls) += !Callee;
    at(local_calls) += Callee && !Callee->isDeclaration();
    at(invokes) += llvm::isa<llvm::InvokeInst>(Call);
    at(noreturn_calls) += Call.doesNotReturn();
    at(used_results) += !Call.use_empty();
    if (const auto *Plain = llvm::dyn_cast<llvm::CallInst>(&Call))
      at(tail_calls) += Plain->isTailCall();
    int64_t InRegisters = 0, OnStack = 0;
    for (const llvm::Use &Argument : Call.args()) {
      ++at(call_arguments);
      at(constant_arguments) += llvm::isa<llvm::Constant>(Argument.get());
      if (Call.isByValArgument(Call.getArgOperandNo(&Argument)))
        ++at(byval_arguments);
      else if (!Argument->getType()->isFPOrFPVectorTy() && ++InRegisters > 6)
        ++OnStack;
    }
    at(stack_arguments) += OnStack;
    at(calls_with_stack_arguments) += OnStack != 0;
  }

  Values Counted = {};
  llvm::DenseMap<const llvm::ConstantInt *, int64_t> Immediates;
  llvm::SmallPtrSet<const llvm::Value *, 16> Globals;
};

#undef COMPILER_OPT_FUNCTION_FEATURES

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_FUNCTION_FEATURES_H_
