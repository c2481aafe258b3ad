// If clang records its command line (-grecord-command-line, -frecord-command-line, -MJ), it must record that of the
// user: objects must not depend on the plugin's path, and other tools cannot load the plugin.

#ifndef COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
#define COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_

#include "environment.h"
#include "files.h"
#include "words.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace mlgo {

// Options that make clang print the commands it would run, and write the file of -MJ, without compiling anything. Each
// must be the first option.
inline constexpr char kPrintCommands[] = "-###", kDriverOnly[] = "-fdriver-only";
// Has clang describe the compilation in a file of the folder that follows.
inline constexpr char kFragments[] = "-gen-cdb-fragment-path";

// Options that make a compiler record the command line in `printed`, the output of a run with `kPrintCommands`, instead
// of its own.
inline std::vector<std::string> record_options(const std::string &printed) {
  std::vector<std::string> options = {"-gno-record-command-line", "-fno-record-command-line"};
  const std::vector<std::string> words = split_words(printed, true);
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

// Removes `kDriverOnly` from the entries of the file of -MJ, or of one of -gen-cdb-fragment-path.
inline void repair_database(const std::string &path) {
  std::string text = read_file(path);
  const std::string option = std::string(", \"") + kDriverOnly + '"';
  const size_t size = text.size();
  for (size_t position = 0; (position = text.find(option, position)) != std::string::npos;)
    text.erase(position, option.size());
  const int file = text.size() == size ? -1 : open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0)
    return;
  if (!write_all(file, text))
    fail(path + ": " + std::strerror(errno));
  close(file);
}

// A folder of ours in that of -gen-cdb-fragment-path, in which clang makes each file under a name that it invents.
class FragmentFolder {
 public:
  explicit FragmentFolder(const std::string &folder) : folder_(folder) {
    mkdir(folder.c_str(), 0770);  // as clang does
    std::string name = folder + "/.mlgo-XXXXXX";
    char path[PATH_MAX];
    if (mkdtemp(name.data()) && realpath(name.c_str(), path))
      own_ = path;
  }
  ~FragmentFolder() {
    if (!own_.empty())
      rmdir(own_.c_str());
  }
  FragmentFolder(const FragmentFolder &) = delete;
  FragmentFolder &operator=(const FragmentFolder &) = delete;

  // Its absolute path, or empty if clang could not write there either.
  const std::string &path() const { return own_; }

  // Moves the repaired files to where the user wants them.
  void publish() const {
    DIR *const folder = opendir(own_.c_str());
    for (const dirent *entry; folder && (entry = readdir(folder));) {
      if (entry->d_name[0] == '.')
        continue;
      const std::string file = own_ + "/" + entry->d_name;
      repair_database(file);
      rename(file.c_str(), (folder_ + "/" + entry->d_name).c_str());
    }
    if (folder)
      closedir(folder);
  }

 private:
  const std::string folder_;
  std::string own_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_RECORDING_H_
