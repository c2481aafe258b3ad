// Runs decision_file.h for tests:
//
//   driver load BLOB                 prints the error message, or `good`
//   driver lookup BLOB QUERIES       a line for each query (u64 name, body, callee, ordinal): 0, 1, or - for none
//   driver damage BLOB               flips every bit, and truncates to every length: load() must fail
//   driver fuzz BLOB SEED ROUNDS     damages it but corrects the checksum: load() must fail, or lookups must be safe

#include "decision_file.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using compiler_opt::DecisionFile;

namespace {

std::vector<unsigned char> read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A copy in an allocation of its exact size, so that a sanitizer detects reads beyond its end.
std::unique_ptr<unsigned char[]> exact(const std::vector<unsigned char> &bytes, size_t size) {
  std::unique_ptr<unsigned char[]> copy(new unsigned char[size]);
  if (size != 0)
    std::memcpy(copy.get(), bytes.data(), size);
  return copy;
}

// Looks up every function and call that the blob may contain.
size_t use(const DecisionFile &file, const unsigned char *blob, size_t size) {
  std::vector<uint64_t> words(size / 8);
  std::memcpy(words.data(), blob, words.size() * 8);
  size_t found = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    found += file.has_caller(words[i]);
    if (const DecisionFile::Caller *caller = file.find(words[i], words[i + 1]))
      for (size_t j = 0; j + 1 < words.size(); ++j)
        found += file.advice(*caller, words[j], static_cast<uint32_t>(words[j + 1])).has_value();
  }
  return found;
}

int run_lookup(const std::vector<unsigned char> &blob, const char *path) {
  DecisionFile file;
  if (const char *problem = file.load(blob.data(), blob.size())) {
    std::puts(problem);
    return 1;
  }
  const std::vector<unsigned char> raw = read(path);
  for (size_t start = 0; start < raw.size(); start += 32) {
    uint64_t query[4];
    std::memcpy(query, &raw[start], sizeof query);
    const DecisionFile::Caller *caller = file.find(query[0], query[1]);
    const std::optional<bool> advice =
        caller ? file.advice(*caller, query[2], static_cast<uint32_t>(query[3])) : std::nullopt;
    std::puts(advice ? *advice ? "1" : "0" : "-");
  }
  return 0;
}

int run_damage(const std::vector<unsigned char> &blob) {
  for (size_t bit = 0; bit < 8 * blob.size(); ++bit) {
    std::vector<unsigned char> damaged = blob;
    damaged[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    if (DecisionFile().load(damaged.data(), damaged.size()) == nullptr) {
      std::printf("accepted with bit %zu flipped\n", bit);
      return 1;
    }
  }
  for (size_t size = 0; size < blob.size(); ++size)
    if (DecisionFile().load(exact(blob, size).get(), size) == nullptr) {
      std::printf("accepted with %zu bytes\n", size);
      return 1;
    }
  return 0;
}

int run_fuzz(const std::vector<unsigned char> &blob, uint64_t seed, int rounds) {
  compiler_opt::SplitMix64 random(seed);
  const auto below = [&random](size_t limit) { return static_cast<size_t>(random.uniform() * static_cast<double>(limit)); };
  int accepted = 0;
  size_t found = 0;
  for (int round = 0; round < rounds; ++round) {
    size_t size = blob.size();
    if (below(4) == 0)
      size = 48 + below(size - 48);
    const std::unique_ptr<unsigned char[]> forged = exact(blob, size);
    for (size_t changes = below(3); changes != 0; --changes)
      forged[16 + below(size - 16)] = static_cast<unsigned char>(below(3) == 0 ? 255 : below(256));
    const uint64_t claimed = size;
    if (below(2) == 0)
      std::memcpy(&forged[16], &claimed, sizeof claimed);
    const uint32_t checksum = compiler_opt::internal::crc32(&forged[16], size - 16);
    std::memcpy(&forged[12], &checksum, sizeof checksum);
    DecisionFile file;
    if (file.load(forged.get(), size) != nullptr)
      continue;
    ++accepted;
    found += use(file, forged.get(), size);
  }
  std::printf("%d\n", found != 0 ? accepted : 0);
  return 0;
}

}  // namespace

int main(int, char **argv) {
  const std::string what = argv[1];
  const std::vector<unsigned char> blob = read(argv[2]);
  if (what == "lookup")
    return run_lookup(blob, argv[3]);
  if (what == "damage")
    return run_damage(blob);
  if (what == "fuzz")
    return run_fuzz(blob, std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]));
  const char *problem = DecisionFile().load(blob.data(), blob.size());
  std::puts(problem != nullptr ? problem : "good");
  return 0;
}
