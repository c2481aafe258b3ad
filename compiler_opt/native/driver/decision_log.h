// MLGO_LOG: a file that lists the inlining decisions that differ from the compiler's default.
//
// The plugin writes those of one compilation to memory, and they are appended to the file only if its object is kept.
// Each compilation appends with a single write, so that many compilers can share the file. To a pipe it writes whole lines.

#ifndef COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_
#define COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_

#include "environment.h"
#include "files.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
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
    // A pipe that nobody reads would block us, or end us by a signal.
    const auto on_broken_pipe = signal(SIGPIPE, SIG_IGN);
    const int target = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (target < 0 || !write_lines(target, lines)) {
      const bool unread = errno == ENXIO || errno == EPIPE || errno == EAGAIN;
      print_message("warning", "MLGO_LOG: " + path_ + ": " + (unread ? "nobody reads it" : std::strerror(errno)));
    }
    signal(SIGPIPE, on_broken_pipe);
  }

 private:
  static constexpr int kPatienceMs = 2000;

  // Returns false, with errno, if that is impossible.
  static bool write_lines(int target, std::string_view lines) {
    struct stat status;
    const bool is_file = fstat(target, &status) == 0 && S_ISREG(status.st_mode);
    while (!lines.empty()) {
      // A pipe takes so many bytes as a whole or not at all.
      const size_t size = is_file || lines.size() <= PIPE_BUF ? lines.size()
                                                              : std::max(lines.rfind('\n', PIPE_BUF - 1) + 1,
                                                                         std::min<size_t>(lines.find('\n') + 1, PIPE_BUF));
      const ssize_t written = write(target, lines.data(), size);
      pollfd event = {target, POLLOUT, 0};
      if (written > 0)
        lines.remove_prefix(static_cast<size_t>(written));
      else if (written == 0 || (errno != EINTR && (errno != EAGAIN || poll(&event, 1, kPatienceMs) == 0)))
        return false;
    }
    return true;
  }

  std::string path_;
  int file_ = -1;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_DECISION_LOG_H_
