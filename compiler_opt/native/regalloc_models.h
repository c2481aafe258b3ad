// Policies for the register allocator that decide by the compiler's features alone, without the plugin: see
// release_model.h.
//
//   compiler_opt::EvictionModel model;                                               // or PriorityModel
//   if (const char *error = model.load(blob, size)) ...                              // `network.mlgo`
//   const std::string error = model.bind(features);                                  // name, is_float and count of each
//   const int64_t candidate = model.decide(tensors);

#ifndef COMPILER_OPT_NATIVE_REGALLOC_MODELS_H_
#define COMPILER_OPT_NATIVE_REGALLOC_MODELS_H_

#include "regalloc_policy.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace compiler_opt {

namespace internal {

template <class Features>
std::vector<FeatureSpec> feature_specs(const Features &features) {
  std::vector<FeatureSpec> specs;
  for (const auto &feature : features)
    specs.push_back({feature.name, feature.is_float, feature.count});
  return specs;
}

}  // namespace internal

// The default's choice of a live range to evict, rebuilt from the features as in
// decisions/regalloc_eviction/rules.py: see there. Spill weights are not negative.
class RebuiltDefaultEviction {
 public:
  // Finds the features. Returns an error message, or an empty string on success.
  std::string bind(const std::vector<FeatureSpec> &features) {
    specs_ = features;
    static constexpr const char *kNames[kNumFeatures] = {"mask",    "is_free",  "nr_urgent",      "nr_broken_hints",
                                                         "is_hint", "is_local", "use_def_density"};
    for (size_t i = 0; i < kNumFeatures; ++i) {
      places_[i] = find_feature(specs_, kNames[i]);
      if (places_[i] == specs_.size() || specs_[places_[i]].count != specs_[places_[0]].count)
        return std::string("the default decision needs the feature ") + kNames[i] +
               ", which this compiler does not compute";
    }
    return "";
  }

  // The index of the candidate; the last one evicts nothing. `tensors` holds the values of the bound features.
  int64_t choose(const std::vector<const void *> &tensors) const {
    const size_t itself = specs_[places_[kMask]].count - 1;
    const bool may_fail = value(kMask, itself, tensors) != 0;
    const float own_weight = weight(itself, tensors);
    size_t chosen = itself;
    Cost cheapest = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
    for (size_t candidate = 0; candidate < itself; ++candidate) {
      if (value(kMask, candidate, tensors) == 0)
        continue;
      Cost cost = {0.0f, 0.0f};
      if (value(kIsFree, candidate, tensors) == 0) {
        cost = {value(kBrokenHints, candidate, tensors) + kUrgentHints * value(kUrgent, candidate, tensors),
                weight(candidate, tensors)};
        if (!cost.is_less(cheapest) || (may_fail && !(cost.weight < own_weight)) ||
            (may_fail && chosen != itself && value(kIsLocal, candidate, tensors) != 0))
          continue;
      }
      chosen = candidate;
      cheapest = cost;
      if (value(kIsHint, candidate, tensors) != 0)
        break;
    }
    return int64_t(chosen);
  }

 private:
  enum Feature { kMask, kIsFree, kUrgent, kBrokenHints, kIsHint, kIsLocal, kWeight, kNumFeatures };
  struct Cost {
    float hints, weight;
    bool is_less(const Cost &other) const {
      return hints < other.hints || (hints == other.hints && weight < other.weight);
    }
  };
  static constexpr float kUrgentHints = 10.0f;  // an urgent eviction counts as this many broken hints

  float value(Feature feature, size_t candidate, const std::vector<const void *> &tensors) const {
    const size_t place = places_[feature];
    return float(element(specs_[place], tensors[place], candidate));
  }

  // NaN comes from dividing infinity by infinity.
  float weight(size_t candidate, const std::vector<const void *> &tensors) const {
    const float found = value(kWeight, candidate, tensors);
    return found != found ? std::numeric_limits<float>::infinity() : found;
  }

  std::vector<FeatureSpec> specs_;
  size_t places_[kNumFeatures] = {};
};

// Which live range to evict: the legal candidate with the highest score.
class EvictionModel {
 public:
  const char *load(const void *blob, size_t size) { return policy_.load(blob, size); }

  template <class Features>
  std::string bind(const Features &features) {
    const std::vector<FeatureSpec> specs = internal::feature_specs(features);
    const std::string error = default_.bind(specs);
    return error.empty() ? policy_.bind(specs) : error;
  }

  int64_t decide(const std::vector<const void *> &tensors) {
    return policy_.choose_candidate(tensors, default_.choose(tensors));
  }

 private:
  RegallocPolicy policy_;
  RebuiltDefaultEviction default_;
};

// The priority of a live range.
class PriorityModel {
 public:
  explicit PriorityModel(const ActionQuantizer &quantizer) : quantizer_(quantizer) {}

  const char *load(const void *blob, size_t size) { return policy_.load(blob, size); }

  template <class Features>
  std::string bind(const Features &features) {
    return policy_.bind(internal::feature_specs(features));
  }

  float decide(const std::vector<const void *> &tensors) { return quantizer_.advice(policy_.mean_action(tensors)); }

 private:
  RegallocPolicy policy_;
  ActionQuantizer quantizer_;
};

}  // namespace compiler_opt

#endif  // COMPILER_OPT_NATIVE_REGALLOC_MODELS_H_
