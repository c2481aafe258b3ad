// What the tests ask of regalloc_policy.h:
//
//   driver choose BLOB OBSERVATIONS SPEC...   an int64 for each decision: the place that is chosen
//   driver number BLOB OBSERVATIONS SPEC...   a double for each decision
//
// A SPEC is NAME:f:COUNT (float) or NAME:i:COUNT (int64); an observation has the tensors in that order, and then what the
// default would choose (int64).

#include "regalloc_policy.h"

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
  std::vector<compiler_opt::SentTensor> sent;
  std::vector<size_t> sizes;
  size_t size = sizeof(int64_t);
  for (int i = 4; i < argc; ++i) {
    const std::string spec = argv[i];
    const size_t colon = spec.find(':');
    const bool is_float = spec[colon + 1] == 'f';
    const size_t count = std::strtoul(spec.c_str() + colon + 3, nullptr, 10);
    sent.push_back({spec.substr(0, colon), is_float, count});
    sizes.push_back(count * (is_float ? sizeof(float) : sizeof(int64_t)));
    size += sizes.back();
  }
  compiler_opt::RegallocPolicy policy;
  if (const char *problem = policy.load(blob.data(), blob.size())) {
    std::puts(problem);
    return 0;
  }
  const std::string wrong = policy.bind(sent);
  if (!wrong.empty()) {
    std::puts(wrong.c_str());
    return 0;
  }
  for (size_t start = 0; start + size <= content.size(); start += size) {
    // Each in memory of its own, so that a sanitizer sees whoever reads on.
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
    int64_t default_place;
    std::memcpy(&default_place, content.data() + begin, sizeof(default_place));
    if (std::strcmp(argv[1], "choose") == 0)
      std::printf("%lld\n", static_cast<long long>(policy.choose(tensors, default_place)));
    else
      std::printf("%.9g\n", policy.number(tensors));
  }
  return 0;
}
