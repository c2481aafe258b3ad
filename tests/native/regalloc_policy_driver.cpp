// Runs regalloc_policy.h for tests:
//
//   driver choose_candidate BLOB OBSERVATIONS SPEC...   prints an integer for each decision: the index of the candidate
//   driver mean_action BLOB OBSERVATIONS SPEC...        prints a floating-point number for each decision
//   driver rebuilt_default - OBSERVATIONS SPEC...       prints the index of the default's candidate for each decision
//
// A SPEC is NAME:f:COUNT (float) or NAME:i:COUNT (int64). An observation consists of these tensors, in this order, and
// the default decision (int64).

#include "regalloc_models.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int argc, char **argv) {
  if (argc < 5)
    return 2;
  std::ifstream blob_file(argv[2], std::ios::binary), file(argv[3], std::ios::binary);
  const std::vector<char> blob{std::istreambuf_iterator<char>(blob_file), {}};
  const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  std::vector<compiler_opt::FeatureSpec> features;
  std::vector<size_t> sizes;
  size_t size = sizeof(int64_t);
  for (int i = 4; i < argc; ++i) {
    const std::string spec = argv[i];
    const size_t colon = spec.find(':');
    const bool is_float = spec[colon + 1] == 'f';
    const size_t count = std::strtoul(spec.c_str() + colon + 3, nullptr, 10);
    features.push_back({spec.substr(0, colon), is_float, count});
    sizes.push_back(count * (is_float ? sizeof(float) : sizeof(int64_t)));
    size += sizes.back();
  }
  const bool rebuilds = std::strcmp(argv[1], "rebuilt_default") == 0;
  compiler_opt::RebuiltDefaultEviction rebuilt;
  compiler_opt::RegallocPolicy policy;
  const char *damage = rebuilds ? nullptr : policy.load(blob.data(), blob.size());
  if (damage != nullptr) {
    std::puts(damage);
    return 0;
  }
  const std::string error = rebuilds ? rebuilt.bind(features) : policy.bind(features);
  if (!error.empty()) {
    std::puts(error.c_str());
    return 0;
  }
  for (size_t start = 0; start + size <= content.size(); start += size) {
    // Each tensor has an allocation of its own, so that a sanitizer detects reads beyond its end.
    std::vector<std::vector<char>> copies;
    std::vector<const void *> tensors;
    size_t begin = start;
    for (const size_t bytes : sizes) {
      copies.emplace_back(content.begin() + static_cast<std::ptrdiff_t>(begin),
                          content.begin() + static_cast<std::ptrdiff_t>(begin + bytes));
      begin += bytes;
    }
    for (const std::vector<char> &copy : copies)
      tensors.push_back(copy.data());
    int64_t default_candidate;
    std::memcpy(&default_candidate, content.data() + begin, sizeof(default_candidate));
    if (rebuilds)
      std::printf("%lld\n", static_cast<long long>(rebuilt.choose(tensors)));
    else if (std::strcmp(argv[1], "choose_candidate") == 0)
      std::printf("%lld\n", static_cast<long long>(policy.choose_candidate(tensors, default_candidate)));
    else
      std::printf("%.9g\n", policy.mean_action(tensors));
  }
  return 0;
}
