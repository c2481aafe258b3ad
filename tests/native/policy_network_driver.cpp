// Runs policy_network.h for tests:
//
//   driver logits BLOB FEATURES LOGITS [LENGTH]   rows of int64 in, rows of float out; prints names and metadata; a
//                                                 module begins every LENGTH rows, or with the first one only
//   driver load BLOB                     prints the error message, or `good`
//   driver damage BLOB                   flips every bit, and truncates to every length: load() must fail
//   driver fuzz BLOB SEED ROUNDS         damages it but corrects the checksum: load() must fail, or logits() be safe
//   driver uniforms SEED COUNT           doubles, 17 digits

#include "policy_network.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using compiler_opt::PolicyNetwork;
using compiler_opt::SplitMix64;

namespace {

std::vector<unsigned char> read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A copy in an allocation of its exact size, so that a sanitizer detects reads beyond its end.
class Exact {
 public:
  Exact(const unsigned char *bytes, size_t size) : memory_(static_cast<unsigned char *>(std::malloc(size))) {
    if (size != 0)
      std::memcpy(memory_.get(), bytes, size);
  }
  unsigned char *get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(unsigned char *memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
};

// Calls all functions of a network, with small and extreme features.
void use(const PolicyNetwork &network, SplitMix64 &random) {
  size_t length = std::strlen(network.metadata());
  for (size_t i = 0; i < network.num_features(); ++i)
    length += std::strlen(network.feature_name(i));
  const int64_t extremes[] = {std::numeric_limits<int64_t>::min(), -1, 0, 1, 100, std::numeric_limits<int64_t>::max()};
  std::vector<int64_t> features(network.num_features());
  std::vector<float> logits(network.num_actions());
  PolicyNetwork::State state;
  for (int round = 0; round < 8; ++round) {
    for (int64_t &feature : features)
      feature = round < 6 ? extremes[round] : extremes[static_cast<size_t>(random.uniform() * 6)];
    network.logits(features.data(), logits.data());
    network.logits(features.data(), logits.data(), state);
  }
  volatile float sink = logits[0] + static_cast<float>(length);
  (void)sink;
}

int run_logits(const std::vector<unsigned char> &blob, const char *features_path, const char *logits_path,
               size_t length) {
  PolicyNetwork network;
  if (const char *problem = network.load(blob.data(), blob.size())) {
    std::puts(problem);
    return 1;
  }
  for (size_t i = 0; i < network.num_features(); ++i)
    std::puts(network.feature_name(i));
  std::puts(network.metadata());
  const std::vector<unsigned char> raw = read(features_path);
  std::vector<int64_t> features(raw.size() / sizeof(int64_t));
  std::memcpy(features.data(), raw.data(), raw.size());
  std::vector<float> logits(features.size() / network.num_features() * network.num_actions());
  PolicyNetwork::State state;
  for (size_t row = 0; row < features.size() / network.num_features(); ++row) {
    if (length != 0 && row % length == 0)
      state = PolicyNetwork::State();
    network.logits(&features[row * network.num_features()], &logits[row * network.num_actions()], state);
  }
  std::ofstream(logits_path, std::ios::binary)
      .write(reinterpret_cast<const char *>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
  return 0;
}

int run_damage(const std::vector<unsigned char> &blob) {
  for (size_t bit = 0; bit < 8 * blob.size(); ++bit) {
    std::vector<unsigned char> damaged = blob;
    damaged[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    PolicyNetwork network;
    if (network.load(damaged.data(), damaged.size()) == nullptr || network.num_features() != 0) {
      std::printf("accepted with bit %zu flipped\n", bit);
      return 1;
    }
  }
  for (size_t size = 0; size < blob.size(); ++size) {
    Exact truncated(blob.data(), size);
    if (PolicyNetwork().load(truncated.get(), size) == nullptr) {
      std::printf("accepted with %zu bytes\n", size);
      return 1;
    }
  }
  return 0;
}

int run_fuzz(const std::vector<unsigned char> &blob, uint64_t seed, int rounds) {
  SplitMix64 random(seed);
  auto below = [&random](size_t limit) { return static_cast<size_t>(random.uniform() * static_cast<double>(limit)); };
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    size_t size = blob.size();
    if (below(4) == 0)
      size = 40 + below(size - 40);
    Exact forged(blob.data(), size);
    for (size_t changes = below(4); changes != 0; --changes) {
      // Half of the changes are in the header, which has the sizes.
      const size_t place = 16 + below((below(2) == 0 ? 120 : size) - 16) % (size - 16);
      forged.get()[place] = static_cast<unsigned char>(below(3) == 0 ? 255 : below(256));
    }
    const uint64_t claimed = size;
    if (below(2) == 0)
      std::memcpy(forged.get() + 16, &claimed, sizeof(claimed));
    const uint32_t checksum = compiler_opt::internal::crc32(forged.get() + 16, size - 16);
    std::memcpy(forged.get() + 12, &checksum, sizeof(checksum));
    PolicyNetwork network;
    if (network.load(forged.get(), size) != nullptr)
      continue;
    ++accepted;
    use(network, random);
  }
  std::printf("%d\n", accepted);
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "uniforms") {
    SplitMix64 random(std::strtoull(argv[2], nullptr, 10));
    for (int i = 0; i < std::atoi(argv[3]); ++i)
      std::printf("%.17g\n", random.uniform());
    return 0;
  }
  const std::vector<unsigned char> blob = read(argv[2]);
  if (what == "logits")
    return run_logits(blob, argv[3], argv[4], argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0);
  if (what == "damage")
    return run_damage(blob);
  if (what == "fuzz")
    return run_fuzz(blob, std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]));
  PolicyNetwork network;
  const char *problem = network.load(blob.data(), blob.size());
  std::puts(problem != nullptr ? problem : "good");
  return 0;
}
