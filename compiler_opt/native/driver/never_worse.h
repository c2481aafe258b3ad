// Never worse: the policy's object is set aside while the compiler makes the plain one.

#ifndef COMPILER_OPT_NATIVE_DRIVER_NEVER_WORSE_H_
#define COMPILER_OPT_NATIVE_DRIVER_NEVER_WORSE_H_

#include "elf_file.h"
#include "files.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace mlgo {

// Whether the object has less text, no more code in it, and the same strong symbols; if not these, the source has changed
// in the meantime.
inline bool is_better(const std::string &policy_output, const std::string &plain_output) {
  const ElfFile with_policy(policy_output), plain(plain_output);
  const std::optional<uint64_t> bytes = with_policy.text_bytes(), plain_bytes = plain.text_bytes();
  return bytes && plain_bytes && *bytes < *plain_bytes &&
         with_policy.code_bytes() <= plain.code_bytes() && with_policy.strong_symbols() &&
         with_policy.strong_symbols() == plain.strong_symbols();
}

// The output of a compilation, which can be set aside and put back.
class Output {
 public:
  // Of a compilation that has not begun.
  explicit Output(const std::string &path) : path_(path) { existed_ = stat(path.c_str(), &before_) == 0; }

  const std::string &path() const { return path_; }

  // Whether the file is another one than before, so that the compilation must have written it. Only then is it ours to
  // move or remove: we might have misread the command line.
  bool is_written() const {
    struct stat now;
    return stat(path_.c_str(), &now) == 0 && S_ISREG(now.st_mode) &&
           (!existed_ || now.st_dev != before_.st_dev || now.st_ino != before_.st_ino || now.st_size != before_.st_size ||
            !is_same(now.st_mtim, before_.st_mtim) || !is_same(now.st_ctim, before_.st_ctim));
  }

  // Moves it to a name beside it, which is short enough for every file system; false, with errno, if that is impossible.
  // A link stays: under another name, the next compilation would write through it.
  bool set_aside() {
    struct stat now;
    errno = EMLINK;
    if (lstat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode) || now.st_nlink != 1)
      return false;
    aside_ = path_.substr(0, path_.rfind('/') + 1) + ".mlgo-" + std::to_string(getpid());
    if (rename(path_.c_str(), aside_.c_str()) == 0)
      return true;
    aside_.clear();
    return false;
  }
  // Where it is meanwhile; empty if it is not set aside.
  const std::string &aside() const { return aside_; }
  // Puts it back; false, with errno, if that is impossible.
  bool put_back() {
    const std::string from = aside_;
    aside_.clear();
    return rename(from.c_str(), path_.c_str()) == 0;
  }
  // Removes what is set aside, if anything is.
  void drop_aside() {
    if (!aside_.empty())
      unlink(aside_.c_str());
    aside_.clear();
  }

 private:
  static bool is_same(const timespec &one, const timespec &other) {
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
  }

  const std::string path_;
  bool existed_ = false;
  struct stat before_ = {};
  std::string aside_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_NEVER_WORSE_H_
