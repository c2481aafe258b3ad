// Detects one-shot inputs, which can be read only once. They must not be compiled twice: the second compiler would find
// them empty, or wait for ever.
//
// They are searched for on the command line before compiling, and among the files that the first compiler has opened
// for #include directives. Inherited descriptors (standard input, a shell's `<(command)`) are closed in a second
// compiler, which then fails if it reads them in another way (#embed, .incbin).

#ifndef COMPILER_OPT_NATIVE_DRIVER_INPUTS_H_
#define COMPILER_OPT_NATIVE_DRIVER_INPUTS_H_

#include "files.h"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <vector>

namespace mlgo {

// Whether a file is a pipe, socket, terminal or the like; not /dev/null, /dev/zero or /dev/full, whose content is
// constant.
inline bool is_one_shot(const struct stat &status) {
  if (S_ISCHR(status.st_mode) && major(status.st_rdev) == 1)
    return minor(status.st_rdev) != 3 && minor(status.st_rdev) != 5 && minor(status.st_rdev) != 7;
  return !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

inline bool is_one_shot(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && is_one_shot(status);
}

// Whether an argument is, or an option contains after a separator, the path of a one-shot input; relative to a folder.
inline bool names_one_shot_input(const std::string &argument, const std::string &folder) {
  if (argument == "/dev/stdout" || argument == "/dev/stderr")
    return false;  // These are outputs, which mlgo-clang buffers.
  if (argument.empty() || argument[0] != '-')
    return is_one_shot(in_folder(folder, argument));
  if (starts_with(argument, "-D"))
    return false;
  for (size_t i = argument.find_first_of("=,"); i != std::string::npos; i = argument.find_first_of("=,", i + 1))
    if (is_one_shot(in_folder(folder, argument.substr(i + 1, argument.find(',', i + 1) - i - 1))))
      return true;
  return false;
}

// The descriptors of one-shot inputs that are open in this process, which children inherit.
inline std::vector<int> inherited_one_shot_inputs() {
  std::vector<int> files;
  DIR *const folder = opendir("/proc/self/fd");
  for (const dirent *entry; folder && (entry = readdir(folder));) {
    const int file = std::atoi(entry->d_name);
    struct stat status;
    if (entry->d_name[0] != '.' && (file == 0 || file > 2) && fstat(file, &status) == 0 && is_one_shot(status))
      files.push_back(file);
  }
  if (folder)
    closedir(folder);
  return files;
}

// The files that a compiler opens for #include, listed by the compiler itself, so that the list exists even if it
// crashes. System headers are included only if the user's options list them (-MD): -sys-header-deps would also add them
// to the output of the user's -MMD.
class IncludeList {
 public:
  IncludeList() : file_(memfd_create("includes", 0)) {}
  ~IncludeList() {
    if (file_ >= 0)
      close(file_);
  }
  IncludeList(const IncludeList &) = delete;
  IncludeList &operator=(const IncludeList &) = delete;

  std::vector<std::string> options() const {
    // The compiler writes one list only, and this variable requests one for the user.
    if (file_ < 0 || std::getenv("CC_PRINT_HEADERS"))
      return {};
    return {"-Xclang", "-header-include-file", "-Xclang", "/proc/self/fd/" + std::to_string(file_)};
  }

  // The first one-shot input in the list, whose paths are relative to a folder; or empty.
  std::string first_one_shot(const std::string &folder) const {
    const std::string list = content_of(file_);
    for (size_t start = 0; start < list.size();) {
      const size_t end = std::min(list.find('\n', start), list.size());
      const std::string path = list.substr(start, end - start);
      if (is_one_shot(in_folder(folder, path)))
        return path;
      start = end + 1;
    }
    return "";
  }

 private:
  const int file_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_INPUTS_H_
