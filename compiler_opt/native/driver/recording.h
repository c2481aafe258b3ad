// If clang records its command line (-grecord-command-line, -frecord-command-line, -MJ), it must record the user's: objects
// must not depend on the plugin's path, and no other tool could load the plugin.

#ifndef COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
#define COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_

#include "command_line.h"

#include <algorithm>
#include <fcntl.h>
#include <string>
#include <vector>

namespace mlgo {

// What makes clang tell what it would record, and what makes it write the file of -MJ, without compiling anything. Each
// is to be the first option.
inline constexpr char kShowRecords[] = "-###", kOnlyWriteDatabase[] = "-fdriver-only";

// Options that have a compiler record what it has shown when asked for that, in the place of its own command line.
inline std::vector<std::string> record_what_is(const std::string &shown) {
  std::vector<std::string> options = {"-gno-record-command-line", "-fno-record-command-line"};
  const std::vector<std::string> words = split_words(shown);
  for (const std::string record : {"-dwarf-debug-flags", "-record-command-line"}) {
    const auto found = std::find(words.begin(), words.end(), record);
    if (found == words.end() || found + 1 == words.end())
      continue;
    std::string flags = found[1];
    const std::string asked = std::string(" ") + kShowRecords;
    const size_t position = flags.find(asked);
    if (position != std::string::npos)
      flags.erase(position, asked.size());
    options.insert(options.end(), {"-Xclang", record, "-Xclang", flags});
  }
  return options;
}

// Takes what it was asked with out of the file of -MJ.
inline void repair_database(const std::string &path) {
  std::string text = read_file(path);
  const std::string asked = std::string(", \"") + kOnlyWriteDatabase + '"';
  const size_t position = text.find(asked);
  if (position == std::string::npos)
    return;
  text.erase(position, asked.size());
  const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0)
    return;
  write_all(file, text);
  close(file);
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
