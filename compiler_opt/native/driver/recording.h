// If clang records its command line (-grecord-command-line, -frecord-command-line, -MJ), it must record that of the
// user: objects must not depend on the plugin's path, and other tools cannot load the plugin.

#ifndef COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
#define COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_

#include "command_line.h"

#include <algorithm>
#include <fcntl.h>
#include <string>
#include <vector>

namespace mlgo {

// Options that make clang print the commands it would run, and write the file of -MJ, without compiling anything. Each
// must be the first option.
inline constexpr char kPrintCommands[] = "-###", kDriverOnly[] = "-fdriver-only";

// Options that make a compiler record the command line in `printed`, the output of a run with `kPrintCommands`, instead
// of its own.
inline std::vector<std::string> record_options(const std::string &printed) {
  std::vector<std::string> options = {"-gno-record-command-line", "-fno-record-command-line"};
  const std::vector<std::string> words = split_words(printed);
  for (const std::string record : {"-dwarf-debug-flags", "-record-command-line"}) {
    const auto found = std::find(words.begin(), words.end(), record);
    if (found == words.end() || found + 1 == words.end())
      continue;
    std::string flags = found[1];
    const std::string option = std::string(" ") + kPrintCommands;
    const size_t position = flags.find(option);
    if (position != std::string::npos)
      flags.erase(position, option.size());
    options.insert(options.end(), {"-Xclang", record, "-Xclang", flags});
  }
  return options;
}

// Removes `kDriverOnly` from the file of -MJ.
inline void repair_database(const std::string &path) {
  std::string text = read_file(path);
  const std::string option = std::string(", \"") + kDriverOnly + '"';
  const size_t position = text.find(option);
  if (position == std::string::npos)
    return;
  text.erase(position, option.size());
  const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0)
    return;
  write_all(file, text);
  close(file);
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
