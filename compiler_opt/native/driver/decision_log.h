// MLGO_LOG: a file that lists the inlining decisions that differ from the compiler's default.
//
// The plugin writes those of one compilation to memory, and they are appended to the file only if its object is kept.
// Each compilation appends with a single write, so that many compilers can share the file.

#ifndef COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_
#define COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_

#include "environment.h"
#include "files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace mlgo {

class DecisionLog {
 public:
  // Sets the environment of the compilers that load the plugin.
  DecisionLog() {
    const char *path = std::getenv("MLGO_LOG");
    if (!path || !*path)
      return;
    path_ = path;
    file_ = memfd_create("decisions", 0);
    if (file_ >= 0)
      setenv("MLGO_INLINER_DIFFERENCES", ("/proc/self/fd/" + std::to_string(file_)).c_str(), 1);
  }
  DecisionLog(const DecisionLog &) = delete;
  DecisionLog &operator=(const DecisionLog &) = delete;

  // Forgets the decisions of a compilation that will be repeated.
  void clear() const {
    if (file_ >= 0)
      (void)!ftruncate(file_, 0);
  }

  // Appends the decisions to the user's file. If that fails, there is a warning: the object is right.
  void keep() const {
    const std::string lines = file_ < 0 ? "" : content_of(file_);
    if (lines.empty())
      return;
    const int target = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const ssize_t written = target < 0 ? -1 : write(target, lines.data(), lines.size());
    if (written != static_cast<ssize_t>(lines.size()))
      print_message("warning", "MLGO_LOG: " + path_ + ": " + std::strerror(written < 0 ? errno : ENOSPC));
  }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_
