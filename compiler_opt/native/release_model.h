// A policy with the interface of the models that LLVM compiles in: `Model` of llvm::ReleaseModeModelRunner<Model>.
//
// What TensorFlow's AOT compiler makes has these functions; this has no TensorFlow in it. `Policy` is what
// compiler_opt/export/release_model.py generates:
//
//   struct Policy {
//     using Result = int64_t;                               // the advice's type
//     static constexpr Tensor kArguments[] = {{"callsite_cost", sizeof(int64_t), 1}, ...};   // in the network's order
//     static constexpr const char *kResult = "inlining_decision";
//     static const unsigned char *blob();                   // aligned; a native form, see policy_network.h
//     static constexpr size_t kBlobSize = ...;
//   };

#ifndef COMPILER_OPT_NATIVE_RELEASE_MODEL_H_
#define COMPILER_OPT_NATIVE_RELEASE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "policy_network.h"

namespace compiler_opt {

// A tensor's name without LLVM's prefix, and what it takes.
struct Tensor {
  const char *name;
  size_t element_bytes;
  size_t elements;
  constexpr size_t bytes() const { return element_bytes * elements; }
};

template <class Policy>
class ReleaseModel {
 public:
  ReleaseModel() : usable_(network_.load(Policy::blob(), Policy::kBlobSize) == nullptr) {}
  // LLVM holds on to the buffers.
  ReleaseModel(const ReleaseModel &) = delete;
  ReleaseModel &operator=(const ReleaseModel &) = delete;

  // The argument's number, or -1 when the policy does not see it; `feed_` before the feature's name.
  int LookupArgIndex(const std::string &name) const {
    for (size_t i = 0; i < kNumArguments; ++i)
      if (is(name, "feed_", Policy::kArguments[i].name))
        return static_cast<int>(i);
    return -1;
  }

  // 0 for the advice, or -1; `fetch_` before its name.
  int LookupResultIndex(const std::string &name) const { return is(name, "fetch_", Policy::kResult) ? 0 : -1; }

  // Where to write an argument, aligned to 64 bytes; nullptr for a number that is none.
  void *arg_data(int index) {
    const size_t place = static_cast<size_t>(index);
    return place < kNumArguments ? arguments_ + offset(place) : nullptr;
  }

  // Where the advice stands after Run().
  void *result_data(int index) { return index == 0 ? &result_ : nullptr; }

  // Decides; false, and advice 0, when what is compiled in was damaged.
  bool Run() {
    result_ = Result{};
    if (!usable_ || network_.num_features() != kNumArguments)
      return false;
    int64_t features[kNumArguments];
    for (size_t i = 0; i < kNumArguments; ++i)
      std::memcpy(&features[i], arguments_ + offset(i), sizeof(int64_t));
    float logits[PolicyNetwork::kMaxActions];
    network_.logits(features, logits);
    size_t best = 0;
    for (size_t action = 1; action < network_.num_actions(); ++action)
      if (logits[action] > logits[best])
        best = action;
    result_ = static_cast<Result>(best);
    return true;
  }

 private:
  using Result = typename Policy::Result;
  static constexpr size_t kNumArguments = std::size(Policy::kArguments);
  static constexpr size_t kAlignment = 64;

  static constexpr size_t offset(size_t index) {
    size_t total = 0;
    for (size_t i = 0; i < index; ++i)
      total += (Policy::kArguments[i].bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return total;
  }
  static constexpr bool only_scalars() {
    for (const Tensor &argument : Policy::kArguments)
      if (argument.element_bytes != sizeof(int64_t) || argument.elements != 1)
        return false;
    return true;
  }
  // The buffers hold any tensors; the network that follows takes these.
  static_assert(only_scalars(), "the policy's network takes scalar int64 features");

  static bool is(const std::string &name, const char *prefix, const char *rest) {
    const size_t length = std::strlen(prefix);
    return name.compare(0, length, prefix) == 0 && name.compare(length, std::string::npos, rest) == 0;
  }

  PolicyNetwork network_;
  bool usable_;
  alignas(kAlignment) unsigned char arguments_[offset(kNumArguments)] = {};
  alignas(kAlignment) Result result_{};
};

}  // namespace compiler_opt

#endif  // COMPILER_OPT_NATIVE_RELEASE_MODEL_H_
