// A trained policy that decides for the register allocator: which live range is evicted, or when one is allocated.
//
//   compiler_opt::RegallocPolicy policy;
//   if (const char *problem = policy.load(blob, size)) ...        // `network.mlgo`, see policy_network.h
//   const std::string wrong = policy.bind(specs);                 // what the compiler sends
//   const int64_t place = policy.choose(tensors, default_place);  // of an eviction
//   const double number = policy.number(tensors);                 // of a priority
//
// What a network sees of each candidate is made here of what the compiler sends, as problems/regalloc_eviction/inputs.py
// makes it; tests hold them together. The network's boundaries are those of floating-point numbers, see `ordered`.

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

// What the compiler sends of one feature.
struct SentTensor {
  std::string name;
  bool is_float;  // else int64
  size_t count;
};

// Whole numbers that are ordered as these are; what is no number comes last.
inline int64_t ordered(double value) {
  if (value != value)
    value = std::numeric_limits<double>::infinity();
  value += 0.0;  // There is one zero.
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >= 0 ? bits : bits ^ std::numeric_limits<int64_t>::max();
}

class RegallocPolicy {
 public:
  // See PolicyNetwork::load.
  const char *load(const void *blob, size_t size) { return network_.load(blob, size); }

  const PolicyNetwork &network() const { return network_; }

  // Finds the network's inputs in what is sent; returns what is wrong, or nothing.
  std::string bind(const std::vector<SentTensor> &sent) {
    sent_ = sent;
    inputs_.clear();
    num_candidates_ = 0;
    const size_t mask = find("mask");
    has_candidates_ = mask != sent.size();
    if (has_candidates_) {
      num_candidates_ = sent[mask].count;
      mask_ = mask;
      weight_ = find("use_def_density");
      broken_hints_ = find("nr_broken_hints");
      if (num_candidates_ < 2 || weight_ == sent.size() || broken_hints_ == sent.size())
        return "the compiler does not send what candidates are compared by";
    }
    if (network_.num_actions() != (has_candidates_ ? 1 : 2))
      return "the network is for another problem";
    for (size_t index = 0; index < network_.num_features(); ++index) {
      const std::string name = network_.feature_name(index);
      const Input input = has_candidates_ ? candidate_input(name) : Input{kSent, find(name)};
      const bool is_sent = input.source == kSent || input.source == kOwn || input.source == kLess;
      if (is_sent && (input.tensor == sent.size() || !has_extent(sent[input.tensor])))
        return "it needs the input " + name + ", which cannot be had of this compiler";
      inputs_.push_back(input);
    }
    values_.assign(sent.size() * num_candidates_, 0.0f);
    weights_.assign(num_candidates_, 0.0f);
    hints_.assign(num_candidates_, 0.0f);
    lighter_.assign(num_candidates_, 0);
    legal_.assign(num_candidates_, 0);
    features_.assign(inputs_.size(), 0);
    return "";
  }

  // The place of the legal candidate with the highest score; the last of them when none is legal.
  //
  // `tensors` are the contents of what was bound, in that order; `default_place` is what the compiler would choose.
  int64_t choose(const std::vector<const void *> &tensors, int64_t default_place) {
    look_at(tensors);
    int64_t best = int64_t(num_candidates_) - 1;
    float best_score = -std::numeric_limits<float>::infinity();
    for (size_t place = 0; place < num_candidates_; ++place) {
      if (!legal_[place])
        continue;
      for (size_t index = 0; index < inputs_.size(); ++index)
        features_[index] = ordered(value(inputs_[index], place, default_place));
      float score;
      network_.logits(features_.data(), &score);
      if (score > best_score) {
        best = int64_t(place);
        best_score = score;
      }
    }
    return best;
  }

  // The mean of what the network would answer; features of one number each.
  double number(const std::vector<const void *> &tensors) {
    for (size_t index = 0; index < inputs_.size(); ++index) {
      const SentTensor &sent = sent_[inputs_[index].tensor];
      features_[index] = ordered(element(sent, tensors[inputs_[index].tensor], 0));
    }
    float outputs[2];
    network_.logits(features_.data(), outputs);
    return outputs[0];
  }

 private:
  enum Source {
    kSent, kOwn, kLess,  // of the candidate, of the interval itself, how many legal candidates have less
    kPlace, kIsItself, kIsDefault, kIsLighter, kWeightOverItself, kRank, kNumLighter, kNumLegal,
  };
  struct Input {
    Source source;
    size_t tensor;
  };

  static constexpr float kLargest = std::numeric_limits<float>::max();

  size_t find(const std::string &name) const {
    size_t index = 0;
    while (index < sent_.size() && sent_[index].name != name)
      ++index;
    return index;
  }

  bool has_extent(const SentTensor &sent) const {
    return sent.count == 1 || (has_candidates_ && sent.count == num_candidates_);
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
    return {kSent, find(name)};
  }

  static double element(const SentTensor &sent, const void *content, size_t index) {
    if (sent.is_float) {
      float value;
      std::memcpy(&value, static_cast<const char *>(content) + index * sizeof(value), sizeof(value));
      return value;
    }
    int64_t value;
    std::memcpy(&value, static_cast<const char *>(content) + index * sizeof(value), sizeof(value));
    return double(value);
  }

  static float finite(float value) {
    if (value != value)
      return 0.0f;
    return std::min(std::max(value, -kLargest), kLargest);
  }

  // Of one decision: the values of each tensor, and how the candidates' weights compare.
  void look_at(const std::vector<const void *> &tensors) {
    const size_t last = num_candidates_ - 1;
    for (size_t place = 0; place < num_candidates_; ++place) {
      legal_[place] = element(sent_[mask_], tensors[mask_], place) != 0;
      const float weight = float(element(sent_[weight_], tensors[weight_], place));
      // Infinity by infinity: one that must not be spilled.
      weights_[place] = weight != weight ? std::numeric_limits<float>::infinity() : weight;
      hints_[place] = float(element(sent_[broken_hints_], tensors[broken_hints_], place));
    }
    for (size_t tensor = 0; tensor < sent_.size(); ++tensor) {
      if (!has_extent(sent_[tensor]))
        continue;
      for (size_t place = 0; place < num_candidates_; ++place) {
        const size_t index = sent_[tensor].count == 1 ? 0 : place;
        values_[tensor * num_candidates_ + place] =
            finite(tensor == weight_ ? weights_[place] : float(element(sent_[tensor], tensors[tensor], index)));
      }
    }
    num_legal_ = num_lighter_ = 0;
    for (size_t place = 0; place < num_candidates_; ++place) {
      num_legal_ += legal_[place] ? 1 : 0;
      // One that must find a register is heavier than all.
      lighter_[place] = place != last && legal_[place] && (weights_[place] < weights_[last] || !legal_[last]);
      num_lighter_ += lighter_[place] ? 1 : 0;
    }
  }

  float sent_value(size_t tensor, size_t place) const { return values_[tensor * num_candidates_ + place]; }

  float value(const Input &input, size_t place, int64_t default_place) const {
    const size_t last = num_candidates_ - 1;
    switch (input.source) {
    case kSent:
      return sent_value(input.tensor, place);
    case kOwn:
      return sent_value(input.tensor, last);
    case kLess:
      return num_less(input.tensor, place);
    case kPlace:
      return float(place);
    case kIsItself:
      return place == last ? 1.0f : 0.0f;
    case kIsDefault:
      return int64_t(place) == default_place ? 1.0f : 0.0f;
    case kIsLighter:
      return lighter_[place] ? 1.0f : 0.0f;
    case kWeightOverItself: {
      if (!legal_[last])
        return 0.0f;
      const float ratio = weights_[place] / weights_[last];
      return ratio != ratio ? 1.0f : std::min(std::max(ratio, -kLargest), kLargest);
    }
    case kRank:
      return place == last ? 0.0f : rank(place);
    case kNumLighter:
      return float(num_lighter_);
    case kNumLegal:
      return float(num_legal_);
    }
    return 0.0f;
  }

  float num_less(size_t tensor, size_t place) const {
    const float *values = &values_[tensor * num_candidates_];
    unsigned count = 0;
    for (size_t other = 0; other < num_candidates_; ++other)
      count += (legal_[other] != 0) & (values[other] < values[place]);
    return float(count);
  }

  // How many other registers cost less: broken hints first, then weight.
  float rank(size_t place) const {
    unsigned count = 0;
    for (size_t other = 0; other + 1 < num_candidates_; ++other) {
      const bool as_many = hints_[other] == hints_[place];
      count += legal_[other] && (hints_[other] < hints_[place] || (as_many && weights_[other] < weights_[place]));
    }
    return float(count);
  }

  PolicyNetwork network_;
  std::vector<SentTensor> sent_;
  std::vector<Input> inputs_;
  bool has_candidates_ = false;
  size_t num_candidates_ = 0;
  size_t mask_ = 0, weight_ = 0, broken_hints_ = 0;  // of the tensors
  // Of the decision that is looked at.
  std::vector<float> values_, weights_, hints_;  // [tensor][place], then [place]: spill weights, broken hints
  std::vector<char> lighter_, legal_;
  size_t num_legal_ = 0, num_lighter_ = 0;
  std::vector<int64_t> features_;
};

}  // namespace compiler_opt

#endif  // COMPILER_OPT_NATIVE_REGALLOC_POLICY_H_
