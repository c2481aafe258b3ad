// Where clang writes down its command line (-grecord-command-line, -frecord-command-line, -MJ), it is to be the user's:
// objects must not depend on where the plugin lies, and no other tool can load it.

#ifndef COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
#define COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_

#include "command_line.h"

#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace mlgo {

inline constexpr char kQuietly[] = "--start-no-unused-arguments", kNoLongerQuietly[] = "--end-no-unused-arguments";

// Options of ours that stand between those two, so that they can be told from the user's.
inline std::vector<std::string> marked(const std::vector<std::string> &options) {
  std::vector<std::string> words = {kQuietly};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back(kNoLongerQuietly);
  return words;
}

// What has a compiler record, in the place of its own command line, that which `shown` tells: the output of the user's
// with -### as its first option.
inline std::vector<std::string> record_what_is(const std::string &shown) {
  std::vector<std::string> options = {"-gno-record-command-line", "-fno-record-command-line"};
  const std::vector<std::string> words = split_words(shown);
  for (const std::string record : {"-dwarf-debug-flags", "-record-command-line"}) {
    const auto found = std::find(words.begin(), words.end(), record);
    if (found == words.end() || found + 1 == words.end())
      continue;
    std::string flags = found[1];
    const std::string asked = " -###";
    const size_t position = flags.find(asked);
    if (position != std::string::npos)
      flags.erase(position, asked.size());
    options.insert(options.end(), {"-Xclang", record, "-Xclang", flags});
  }
  return options;
}

// Stands in for the file of -MJ until ours is taken out of it.
class CompilationDatabase {
 public:
  explicit CompilationDatabase(const std::string &path)
      : path_(path), file_(path.empty() ? -1 : memfd_create("database", 0)) {}
  ~CompilationDatabase() {
    if (file_ >= 0)
      close(file_);
  }
  CompilationDatabase(const CompilationDatabase &) = delete;
  CompilationDatabase &operator=(const CompilationDatabase &) = delete;

  std::vector<std::string> options() const {
    if (file_ < 0)
      return {};
    return {"-MJ", "/proc/self/fd/" + std::to_string(file_)};
  }

  // Writes the user's file; false when that cannot be.
  bool publish() const {
    if (file_ < 0)
      return true;
    std::string text = content_of(file_);
    const auto quoted = [](const char *word) { return ", \"" + std::string(word) + '"'; };
    for (size_t start; (start = text.find(quoted(kQuietly))) != std::string::npos;) {
      const size_t end = text.find(quoted(kNoLongerQuietly), start);
      if (end == std::string::npos)
        break;
      text.erase(start, end + quoted(kNoLongerQuietly).size() - start);
    }
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
      return false;
    write_all(file, text);
    return close(file) == 0;
  }

 private:
  const std::string path_;
  const int file_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
