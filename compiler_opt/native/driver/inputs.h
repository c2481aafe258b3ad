// Inputs that can be read only once must not be compiled twice: the second compiler would find them empty, or wait forever.
//
// They are looked for on the command line, before compiling, and among the files that the first compiler has opened for its
// #include directives, which it lists. Inherited descriptors (standard input, a shell's `<(command)`) are withheld from a
// second compiler, which fails if it reads them in another way (#embed, .incbin).

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

// Pipes, sockets, terminals and the like; not /dev/null, /dev/zero and /dev/full, which give the same each time.
inline bool is_read_only_once(const struct stat &status) {
  if (S_ISCHR(status.st_mode) && major(status.st_rdev) == 1)
    return minor(status.st_rdev) != 3 && minor(status.st_rdev) != 5 && minor(status.st_rdev) != 7;
  return !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

inline bool is_read_only_once(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && is_read_only_once(status);
}

// Whether an argument names such a thing: all of it, or what follows an option's separators.
inline bool names_what_is_read_only_once(const std::string &argument) {
  if (argument == "/dev/stdout" || argument == "/dev/stderr")
    return false;  // Written, and kept by us until it is known whether it is wanted.
  if (argument.empty() || argument[0] != '-')
    return is_read_only_once(argument);
  if (starts_with(argument, "-D"))
    return false;
  for (size_t i = argument.find_first_of("=,"); i != std::string::npos; i = argument.find_first_of("=,", i + 1))
    if (is_read_only_once(argument.substr(i + 1, argument.find(',', i + 1) - i - 1)))
      return true;
  return false;
}

// Files that are open here, and so in our children, and can be read only once.
inline std::vector<int> inherited_read_only_once() {
  std::vector<int> files;
  DIR *const folder = opendir("/proc/self/fd");
  for (const dirent *entry; folder && (entry = readdir(folder));) {
    const int file = std::atoi(entry->d_name);
    struct stat status;
    if (entry->d_name[0] != '.' && (file == 0 || file > 2) && fstat(file, &status) == 0 && is_read_only_once(status))
      files.push_back(file);
  }
  if (folder)
    closedir(folder);
  return files;
}

// The list that a compiler keeps of what it opens for #include, also when it dies. Headers of the system are missing
// from it, unless the user's own -MD asks for them: -sys-header-deps would put them among the user's -MMD as well.
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
    // With that variable, it would be the user's list that is missing.
    if (file_ < 0 || std::getenv("CC_PRINT_HEADERS"))
      return {};
    return {"-Xclang", "-header-include-file", "-Xclang", "/proc/self/fd/" + std::to_string(file_)};
  }

  // The first in it that can be read only once, or empty.
  std::string read_only_once() const {
    const std::string list = content_of(file_);
    for (size_t start = 0; start < list.size();) {
      const size_t end = std::min(list.find('\n', start), list.size());
      const std::string path = list.substr(start, end - start);
      if (is_read_only_once(path))
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
