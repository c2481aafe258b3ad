// libFuzzer targets for the parsers in compiler_opt/native. `fuzzers --target=NAME --folder=FOLDER ...` runs one, which
// may write files to the folder; tests/fuzz/native.py builds and starts it.

#include "command_line.h"
#include "decision_file.h"
#include "elf_file.h"
#include "policy_network.h"
#include "regalloc_policy.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using Bytes = std::basic_string_view<uint8_t>;

void check(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// A file in memory, with a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : file_(memfd_create("input", 0)) { mlgo::write_all(file_, content); }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
};

// An allocation of the exact size, aligned like a mapped file, so that reads beyond its end are detected.
class Exact {
 public:
  explicit Exact(Bytes bytes) : memory_(new uint8_t[bytes.size()]), size_(bytes.size()) {
    std::memcpy(memory_.get(), bytes.data(), size_);
  }
  const uint8_t *get() const { return memory_.get(); }

  // Makes size and checksum of a native file right, as those of a forged file would be.
  void repair() {
    const uint64_t size = size_;
    if (size < 24)
      return;
    std::memcpy(&memory_[16], &size, sizeof size);
    const uint32_t checksum = compiler_opt::internal::crc32(&memory_[16], size - 16);
    std::memcpy(&memory_[12], &checksum, sizeof checksum);
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  const size_t size_;
};

const int64_t kExtremes[] = {std::numeric_limits<int64_t>::min(), -1, 0, 1, 100, std::numeric_limits<int64_t>::max()};

// Calls every function of a network that was loaded.
void use(const compiler_opt::PolicyNetwork &network) {
  size_t length = std::strlen(network.metadata());
  for (size_t i = 0; i < network.num_features(); ++i)
    length += std::strlen(network.feature_name(i));
  check(network.margin() >= 0, "margins are not negative");
  check(network.num_features() > 0 && network.num_actions() > 0, "a loaded network has features and actions");
  std::vector<int64_t> features(network.num_features());
  std::vector<float> logits(network.num_actions()), again(network.num_actions());
  for (const int64_t value : kExtremes) {
    std::fill(features.begin(), features.end(), value);
    network.logits(features.data(), logits.data());
    network.logits(features.data(), again.data());
    check(std::memcmp(logits.data(), again.data(), logits.size() * sizeof(float)) == 0, "logits are deterministic");
    compiler_opt::PolicyNetwork::State state;
    network.logits(features.data(), again.data(), state);
    check(std::memcmp(logits.data(), again.data(), logits.size() * sizeof(float)) == 0, "an empty state is a module's start");
    network.logits(features.data(), again.data(), state);
  }
  volatile size_t sink = length;
  (void)sink;
}

// The register allocator's inputs: the tensors of one decision, all zeros, ones or extremes.
void use_for_registers(const Exact &blob, size_t size) {
  constexpr size_t kCandidates = 3;
  compiler_opt::RegallocPolicy policy;
  if (policy.load(blob.get(), size) != nullptr)
    return;
  std::vector<compiler_opt::FeatureSpec> evictions, priorities;
  for (const char *name : {"mask", "is_hint", "nr_broken_hints"})
    evictions.push_back({name, false, kCandidates});
  for (const char *name : {"use_def_density", "hint_weights_by_max"})
    evictions.push_back({name, true, kCandidates});
  evictions.push_back({"progress", true, 1});
  for (const char *name : {"li_size", "stage"})
    priorities.push_back({name, false, 1});
  priorities.push_back({"weight", true, 1});
  for (const auto *specs : {&evictions, &priorities}) {
    if (!policy.bind(*specs).empty())
      continue;
    for (const int64_t value : kExtremes) {
      const std::vector<int64_t> content(kCandidates, value);  // as floats: also NaN
      const std::vector<const void *> tensors(specs->size(), content.data());
      if (specs == &evictions) {
        const int64_t chosen = policy.choose_candidate(tensors, 0);
        check(chosen >= 0 && chosen < int64_t(kCandidates), "the chosen candidate exists");
      } else {
        volatile double mean = policy.mean_action(tensors);
        (void)mean;
      }
    }
  }
}

void fuzz_policy_network(Bytes input) {
  for (const bool repairs : {false, true}) {
    Exact blob(input);
    if (repairs)
      blob.repair();
    compiler_opt::PolicyNetwork network;
    if (const char *error = network.load(blob.get(), input.size())) {
      check(network.num_features() == 0 && *error != '\0', "a rejected network is empty, and there is a reason");
      continue;
    }
    use(network);
    use_for_registers(blob, input.size());
  }
}

void fuzz_decision_file(Bytes input) {
  for (const bool repairs : {false, true}) {
    Exact blob(input);
    if (repairs)
      blob.repair();
    compiler_opt::DecisionFile file;
    if (const char *error = file.load(blob.get(), input.size())) {
      check(file.num_decisions() == 0 && *error != '\0', "a rejected file is empty, and there is a reason");
      continue;
    }
    std::vector<uint64_t> words(input.size() / 8);
    std::memcpy(words.data(), blob.get(), words.size() * 8);
    // Anything that the file contains may be asked for.
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const auto *caller = file.find(words[i], words[i + 1]);
      check(caller == nullptr || file.has_caller(words[i]), "a function with decisions is known by name");
      for (size_t j = i + 2; caller && j + 1 < words.size() && j < i + 64; ++j)
        (void)file.advice(*caller, words[j], static_cast<uint32_t>(words[j + 1]));
    }
  }
}

const char *const kOptions[] = {"-disable-lsr=true", nullptr};
const mlgo::config::OptionSet kSets[] = {{"Oz", "x86_64", kOptions}, {}};

// Arguments end in NUL. What follows an @ is the content of a response file.
void fuzz_command_line(Bytes input) {
  std::vector<std::string> arguments;
  std::vector<std::unique_ptr<MemoryFile>> files;
  for (size_t start = 0; start < input.size() && arguments.size() < 64;) {
    const size_t end = std::min(input.find('\0', start), input.size());
    std::string argument(reinterpret_cast<const char *>(input.data()) + start, end - start);
    if (argument[0] == '@' && files.size() < 8) {
      files.push_back(std::make_unique<MemoryFile>(std::string_view(argument).substr(1)));
      argument = "@" + files.back()->path();
    }
    arguments.push_back(std::move(argument));
    start = end + 1;
  }
  const mlgo::CommandLine line(arguments);
  const std::string &level = line.level();
  check(!level.empty() && level[0] == 'O', "a level begins with O");
  (void)line.depends_on_configuration(mlgo::PassOptions({22, "", "", "x86_64", kSets}), false);
  (void)line.optimizes_at_link();
  (void)line.names_one_shot_input();
  (void)(line.measurable_output().size() + line.database().size());
}

std::string folder;

// What clang -### prints; after `%`, the content of a configuration file, whose line comes first.
void fuzz_configuration(Bytes input) {
  const std::string text(reinterpret_cast<const char *>(input.data()), input.size());
  const size_t cut = std::min(text.find('%'), text.size());
  // In a folder of its own: names in it are relative to that.
  const std::string path = folder + "/file";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  check(file >= 0, "the folder can be written");
  mlgo::write_all(file, std::string_view(text).substr(std::min(cut + 1, text.size())));
  close(file);
  const std::string printed = "Configuration file: " + path + "\n" + text.substr(0, cut);
  const mlgo::Configuration configuration = mlgo::Configuration::parse(printed);
  const mlgo::CommandLine line({"-c", "a.c"}, configuration);
  (void)line.compiles();
  for (const std::string &word : mlgo::split_words(text))
    check(word.size() <= text.size(), "no word is longer than the text");
}

void fuzz_elf_file(Bytes input) {
  const MemoryFile file({reinterpret_cast<const char *>(input.data()), input.size()});
  const mlgo::ElfFile elf(file.path());
  (void)elf.text_bytes();
  (void)elf.build_id();
  if (const auto names = elf.strong_symbols())
    for (const std::string &name : *names)
      check(name.size() < input.size(), "a name is within the file");
}

constexpr struct {
  const char *name;
  void (*function)(Bytes);
} kTargets[] = {
    {"command_line", fuzz_command_line},
    {"configuration", fuzz_configuration},
    {"decision_file", fuzz_decision_file},
    {"elf_file", fuzz_elf_file},
    {"policy_network", fuzz_policy_network},
};

void (*target)(Bytes) = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv) {
  static constexpr std::string_view kTarget = "--target=", kFolder = "--folder=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    for (const auto &each : kTargets)
      if (mlgo::starts_with(argument, kTarget) && argument.substr(kTarget.size()) == each.name)
        target = each.function;
    if (mlgo::starts_with(argument, kFolder))
      folder = argument.substr(kFolder.size());
  }
  if (target != nullptr && !folder.empty())
    return 0;
  std::fputs("expected --target=NAME --folder=FOLDER\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  target({data, size});
  return 0;
}
