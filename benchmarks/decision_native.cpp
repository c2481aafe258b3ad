// Times policy_network.h: decision_native BLOB FEATURES REPETITIONS DECISIONS
//
// Prints CPU nanoseconds per decision for each repetition, and writes to DECISIONS one byte for each row of FEATURES.

#include "policy_network.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

// Returns the file's content, aligned to 8 bytes.
std::vector<int64_t> read(const char *path, size_t &size) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  size = raw.size();
  std::vector<int64_t> words((raw.size() + 7) / 8);
  std::memcpy(words.data(), raw.data(), raw.size());
  return words;
}

double cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int, char **argv) {
  size_t blob_size, features_size;
  const std::vector<int64_t> blob = read(argv[1], blob_size), features = read(argv[2], features_size);
  compiler_opt::PolicyNetwork network;
  if (const char *problem = network.load(blob.data(), blob_size)) {
    std::fprintf(stderr, "%s\n", problem);
    return 1;
  }
  const size_t width = network.num_features(), rows = features.size() / width;
  std::vector<char> decisions(rows);
  std::vector<float> logits(network.num_actions());
  for (int repetition = 0; repetition < std::atoi(argv[3]); ++repetition) {
    const double start = cpu_ns();
    for (size_t row = 0; row < rows; ++row) {
      network.logits(&features[row * width], logits.data());
      decisions[row] = logits[1] > logits[0];
    }
    std::printf("%.3f\n", (cpu_ns() - start) / static_cast<double>(rows));
  }
  std::ofstream(argv[4], std::ios::binary).write(decisions.data(), static_cast<std::streamsize>(rows));
}
