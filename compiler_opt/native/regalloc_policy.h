// A trained policy for the register allocator: which live range to evict, or which priority to give to one.
//
//   compiler_opt::RegallocPolicy policy;
//   if (const char *error = policy.load(blob, size)) ...           // `network.mlgo`, see policy_network.h
//   const std::string error = policy.bind(compiler_features);
//   const int64_t candidate = policy.choose_candidate(tensors, default_candidate);   // for an eviction
//   const double action = policy.mean_action(tensors);                               // for a priority
//
// For evictions, the network's inputs for each candidate are derived from the compiler's features in the same way as in
// decisions/regalloc_eviction/inputs.py; tests compare the two. The network's quantile boundaries are floating-point
// numbers that `ordered` has converted.

#ifndef COMPILER_OPT_NATIVE_REGALLOC_POLICY_H_
#define COMPILER_OPT_NATIVE_REGALLOC_POLICY_H_

#include "policy_network.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace compiler_opt {

// A feature of the compiler.
struct FeatureSpec {
  std::string name;
  bool is_float;  // float32 if true, else int64
  size_t count;   // number of elements
};

// Maps floating-point numbers to int64 in the same order; NaN is equal to infinity, and -0.0 to 0.0.
inline int64_t ordered(double value) {
  if (value != value)
    value = std::numeric_limits<double>::infinity();
  value += 0.0;  // -0.0 becomes 0.0.
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >= 0 ? bits : bits ^ std::numeric_limits<int64_t>::max();
}

// The index of a feature; their number if it is not among them.
inline size_t find_feature(const std::vector<FeatureSpec> &specs, const std::string &name) {
  size_t index = 0;
  while (index < specs.size() && specs[index].name != name)
    ++index;
  return index;
}

// An element of a feature's values.
inline double element(const FeatureSpec &spec, const void *content, size_t index) {
  if (spec.is_float) {
    float value;
    std::memcpy(&value, static_cast<const char *>(content) + index * sizeof(value), sizeof(value));
    return value;
  }
  int64_t value;
  std::memcpy(&value, static_cast<const char *>(content) + index * sizeof(value), sizeof(value));
  return double(value);
}

// Converts a network's output to a priority; see spaces/continuous.py.
struct ActionQuantizer {
  double lowest, highest, steps;

  float advice(double action) const {
    const double largest = std::rint((highest - lowest) * steps);
    return float(std::min(std::max(std::rint((action - lowest) * steps), 0.0), largest));
  }
};

class RegallocPolicy {
 public:
  // See PolicyNetwork::load.
  const char *load(const void *blob, size_t size, bool is_embedded = false) {
    return network_.load(blob, size, is_embedded);
  }

  const PolicyNetwork &network() const { return network_; }

  // Finds the network's inputs among the compiler's features. Returns an error message, or an empty string on success.
  std::string bind(const std::vector<FeatureSpec> &features) {
    specs_ = features;
    inputs_.clear();
    num_candidates_ = 0;
    const size_t mask = find("mask");
    has_candidates_ = mask != features.size();
    if (has_candidates_) {
      num_candidates_ = features[mask].count;
      mask_ = mask;
      weight_ = find("use_def_density");
      broken_hints_ = find("nr_broken_hints");
      if (num_candidates_ < 2 || weight_ == features.size() || broken_hints_ == features.size())
        return "the compiler does not compute use_def_density and nr_broken_hints, by which candidates are compared";
    }
    if (network_.margin() != 0)
      return "the network has a margin, which only inlining policies may have";
    if (network_.is_recurrent())
      return "the network is recurrent, which only inlining policies may be";
    if (network_.num_actions() != (has_candidates_ ? 1 : 2))
      return "the network is for another problem";
    for (size_t index = 0; index < network_.num_features(); ++index) {
      const std::string name = network_.feature_name(index);
      const Input input = has_candidates_ ? candidate_input(name) : Input{kCandidate, find(name)};
      const bool is_feature = input.source == kCandidate || input.source == kOwn || input.source == kLess;
      if (is_feature && (input.tensor == features.size() || !has_extent(features[input.tensor])))
        return "it needs the input " + name + ", which this compiler does not compute";
      inputs_.push_back(input);
    }
    values_.assign(features.size() * num_candidates_, 0.0f);
    weights_.assign(num_candidates_, 0.0f);
    hints_.assign(num_candidates_, 0.0f);
    lighter_.assign(num_candidates_, 0);
    legal_.assign(num_candidates_, 0);
    features_.assign(inputs_.size(), 0);
    return "";
  }

  // The index of the legal candidate with the highest score; that of the last candidate if none is legal.
  //
  // `tensors` holds the values of the bound features, in their order; `default_candidate` is the default's choice.
  int64_t choose_candidate(const std::vector<const void *> &tensors, int64_t default_candidate) {
    read_candidates(tensors);
    int64_t best = int64_t(num_candidates_) - 1;
    float best_score = -std::numeric_limits<float>::infinity();
    for (size_t candidate = 0; candidate < num_candidates_; ++candidate) {
      if (!legal_[candidate])
        continue;
      for (size_t index = 0; index < inputs_.size(); ++index)
        features_[index] = ordered(value(inputs_[index], candidate, default_candidate));
      float score;
      network_.logits(features_.data(), &score);
      if (score > best_score) {
        best = int64_t(candidate);
        best_score = score;
      }
    }
    return best;
  }

  // The mean of the action's distribution. All features have one element.
  double mean_action(const std::vector<const void *> &tensors) {
    for (size_t index = 0; index < inputs_.size(); ++index) {
      const size_t tensor = inputs_[index].tensor;
      features_[index] = ordered(element(specs_[tensor], tensors[tensor], 0));
    }
    float outputs[2];
    network_.logits(features_.data(), outputs);
    return outputs[0];
  }

 private:
  enum Source {
    // From one feature: the candidate's value, the value of the interval to allocate, and the number of legal
    // candidates with a smaller value.
    kCandidate, kOwn, kLess,
    // From several features.
    kPlace, kIsItself, kIsDefault, kIsLighter, kWeightOverItself, kRank, kNumLighter, kNumLegal,
  };
  struct Input {
    Source source;
    size_t tensor;  // index of the feature
  };

  static constexpr float kLargest = std::numeric_limits<float>::max();

  size_t find(const std::string &name) const { return find_feature(specs_, name); }

  bool has_extent(const FeatureSpec &spec) const {
    return spec.count == 1 || (has_candidates_ && spec.count == num_candidates_);
  }

  Input candidate_input(const std::string &name) const {
    static constexpr struct {
      const char *name;
      Source source;
    } kRelative[] = {
        {"place", kPlace},           {"is_itself", kIsItself},
        {"is_default", kIsDefault},  {"is_lighter", kIsLighter},
        {"rank", kRank},             {"weight_over_itself", kWeightOverItself},
        {"nr_lighter", kNumLighter}, {"nr_legal", kNumLegal},
    };
    for (const auto &relative : kRelative)
      if (name == relative.name)
        return {relative.source, 0};
    if (name.compare(0, 4, "own_") == 0)
      return {kOwn, find(name.substr(4))};
    if (name.compare(0, 5, "less_") == 0)
      return {kLess, find(name.substr(5))};
    return {kCandidate, find(name)};
  }

  static float finite(float value) {
    if (value != value)
      return 0.0f;
    return std::min(std::max(value, -kLargest), kLargest);
  }

  // Reads the features of one decision, and compares the candidates' weights.
  void read_candidates(const std::vector<const void *> &tensors) {
    const size_t last = num_candidates_ - 1;
    for (size_t candidate = 0; candidate < num_candidates_; ++candidate) {
      legal_[candidate] = element(specs_[mask_], tensors[mask_], candidate) != 0;
      const float weight = float(element(specs_[weight_], tensors[weight_], candidate));
      // NaN comes from dividing infinity by infinity: an interval that must not be spilled.
      weights_[candidate] = weight != weight ? std::numeric_limits<float>::infinity() : weight;
      hints_[candidate] = float(element(specs_[broken_hints_], tensors[broken_hints_], candidate));
    }
    for (size_t tensor = 0; tensor < specs_.size(); ++tensor) {
      if (!has_extent(specs_[tensor]))
        continue;
      for (size_t candidate = 0; candidate < num_candidates_; ++candidate) {
        const size_t index = specs_[tensor].count == 1 ? 0 : candidate;
        values_[tensor * num_candidates_ + candidate] =
            finite(tensor == weight_ ? weights_[candidate] : float(element(specs_[tensor], tensors[tensor], index)));
      }
    }
    num_legal_ = num_lighter_ = 0;
    for (size_t candidate = 0; candidate < num_candidates_; ++candidate) {
      num_legal_ += legal_[candidate] ? 1 : 0;
      // If the last candidate is illegal, the interval must get a register, so every other one is lighter.
      const bool is_lighter = weights_[candidate] < weights_[last] || !legal_[last];
      lighter_[candidate] = candidate != last && legal_[candidate] && is_lighter;
      num_lighter_ += lighter_[candidate] ? 1 : 0;
    }
  }

  float feature_value(size_t tensor, size_t candidate) const { return values_[tensor * num_candidates_ + candidate]; }

  float value(const Input &input, size_t candidate, int64_t default_candidate) const {
    const size_t last = num_candidates_ - 1;
    switch (input.source) {
    case kCandidate:
      return feature_value(input.tensor, candidate);
    case kOwn:
      return feature_value(input.tensor, last);
    case kLess:
      return num_less(input.tensor, candidate);
    case kPlace:
      return float(candidate);
    case kIsItself:
      return candidate == last ? 1.0f : 0.0f;
    case kIsDefault:
      return int64_t(candidate) == default_candidate ? 1.0f : 0.0f;
    case kIsLighter:
      return lighter_[candidate] ? 1.0f : 0.0f;
    case kWeightOverItself: {
      if (!legal_[last])
        return 0.0f;
      const float ratio = weights_[candidate] / weights_[last];
      return ratio != ratio ? 1.0f : std::min(std::max(ratio, -kLargest), kLargest);
    }
    case kRank:
      return candidate == last ? 0.0f : rank(candidate);
    case kNumLighter:
      return float(num_lighter_);
    case kNumLegal:
      return float(num_legal_);
    }
    return 0.0f;
  }

  float num_less(size_t tensor, size_t candidate) const {
    const float *values = &values_[tensor * num_candidates_];
    unsigned count = 0;
    for (size_t other = 0; other < num_candidates_; ++other)
      count += (legal_[other] != 0) & (values[other] < values[candidate]);
    return float(count);
  }

  // The number of legal registers that are cheaper to evict: by broken hints first, then by weight.
  float rank(size_t candidate) const {
    unsigned count = 0;
    for (size_t other = 0; other + 1 < num_candidates_; ++other) {
      const bool same_hints = hints_[other] == hints_[candidate];
      const bool is_lighter = same_hints && weights_[other] < weights_[candidate];
      count += legal_[other] && (hints_[other] < hints_[candidate] || is_lighter);
    }
    return float(count);
  }

  PolicyNetwork network_;
  std::vector<FeatureSpec> specs_;
  std::vector<Input> inputs_;
  bool has_candidates_ = false;
  size_t num_candidates_ = 0;
  size_t mask_ = 0, weight_ = 0, broken_hints_ = 0;  // indices of features
  // The current decision.
  std::vector<float> values_;           // [feature][candidate]
  std::vector<float> weights_, hints_;  // [candidate]: spill weights, broken hints
  std::vector<char> lighter_, legal_;   // [candidate]
  size_t num_legal_ = 0, num_lighter_ = 0;
  std::vector<int64_t> features_;
};

}  // namespace compiler_opt

#endif  // COMPILER_OPT_NATIVE_REGALLOC_POLICY_H_
