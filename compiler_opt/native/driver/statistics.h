// MLGO_STATS: a folder, whose file `mlgo-stats` counts what becomes of compilations.
//
// The file has some hundred bytes of text: what it is, since when it counts, and a number for each event. Compilers take
// turns by a lock. Counting is no reason for a compilation to fail or to print something: where it is impossible, nothing
// is counted.

#ifndef COMPILER_OPT_NATIVE_DRIVER_STATISTICS_H_
#define COMPILER_OPT_NATIVE_DRIVER_STATISTICS_H_

#include "environment.h"
#include "files.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mlgo {

// What becomes of a command line. The order is that of kEvents.
enum class Event {
  kUsed,
  kOtherLevel, kNoCode, kDisabled, kReadOnce, kUnsupported, kNotComparable, kPlainIsBetter,
  kFiles, kPart, kProcess, kCrash, kFailure,
  kUserError, kRefused,
};

class Statistics {
 public:
  Statistics() {
    if (const char *folder = std::getenv("MLGO_STATS"); folder && *folder)
      path_ = std::string(folder) + "/mlgo-stats";
  }

  // A policy, or its decisions, are left out of this compilation, with a warning.
  void lose_a_part() { lost_a_part_ = true; }

  void count(Event event) const {
    if (path_[0] != '/')
      return;  // It is unset, or another folder for each compilation.
    if (lost_a_part_ && event < Event::kFiles)  // Those are without a warning.
      event = Event::kPart;
    if (const int file = open_file(O_RDWR | O_CREAT); file >= 0) {
      Numbers numbers;
      if (numbers.read(file)) {
        ++numbers.events[static_cast<size_t>(event)];
        numbers.write(file);
      }
      close(file);
    }
  }

  // For people.
  std::string table() const {
    check_path();
    Numbers numbers;
    const int file = open_file(O_RDWR);
    if (file < 0 ? errno != ENOENT || access(folder().c_str(), W_OK | X_OK) != 0 : !numbers.read(file))
      fail_to("read", file);
    std::string text = file < 0 ? "nothing counted yet\n" : "since " + numbers.since() + "\n";
    for (size_t first = 0, end; first < std::size(kEvents); first = end) {
      uint64_t sum = 0;
      for (end = first; end < std::size(kEvents) && (end == first || !kEvents[end].group); ++end)
        sum += numbers.events[end];
      text += "\n" + row(kEvents[first].group, sum);
      for (size_t index = first; index < end; ++index)
        if (kEvents[index].reason && numbers.events[index] != 0)
          text += row(std::string("  ") + kEvents[index].reason, numbers.events[index]);
    }
    return text;
  }

  // Begins to count anew.
  void zero() const {
    check_path();
    Numbers numbers;
    const int file = open_file(O_RDWR | O_CREAT);
    if (file < 0 || !numbers.read(file) || !Numbers().write(file))
      fail_to("write", file);
    close(file);
  }

 private:
  struct Kind {
    const char *key;     // in the file
    const char *group;   // of which it is the first; null for the others
    const char *reason;  // null if the group says it all
  };
  static constexpr Kind kEvents[] = {
      {"used", "with the policy or options", nullptr},
      {"other_level", "clang alone, as it should", "neither policy nor options for this level or target"},
      {"no_code", nullptr, "no code is generated, as in preprocessing and plain links"},
      {"disabled", nullptr, "switched off by MLGO_DISABLE"},
      {"read_once", nullptr, "an input can be read only once, or is missing"},
      {"unsupported", nullptr, "options or a mode that only clang itself understands"},
      {"not_comparable", nullptr, "never worse: there is no output to compare"},
      {"plain_is_better", nullptr, "never worse: clang's object is the better one"},
      {"files", "clang alone or a part of the deployment, with a warning", "files of the deployment are missing or damaged"},
      {"part", nullptr, "only a part of the deployment: other files are missing or damaged"},
      {"process", nullptr, "no /proc, or too few free descriptors"},
      {"crash", nullptr, "the compiler crashed with the policy or options"},
      {"failure", nullptr, "the compiler failed with the policy or options"},
      {"user_error", "failed", "clang alone has errors, too"},
      {"refused", nullptr, "only with the policy or options, and not repeated without (strict)"},
  };

  struct Numbers {
    uint64_t since_s = static_cast<uint64_t>(std::time(nullptr)), events[std::size(kEvents)] = {};

    // Returns false if the file is neither empty nor ours.
    bool read(int file) {
      const std::string text = content_of(file, kMaxBytes);
      if (text.empty())
        return true;
      since_s = number(text, "since", since_s);
      for (size_t index = 0; index < std::size(kEvents); ++index)
        events[index] = number(text, kEvents[index].key, 0);
      const bool is_ours = starts_with(text, kTitle) && !since().empty();
      errno = EBADMSG;
      return is_ours;
    }

    // Empty if that is no sensible time.
    std::string since() const {
      const time_t seconds = static_cast<time_t>(since_s);
      const std::tm *time = since_s <= kLastS ? std::gmtime(&seconds) : nullptr;
      char text[32];
      return time && std::strftime(text, sizeof text, "%F %T UTC", time) != 0 ? text : "";
    }

    bool write(int file) const {
      std::string text = std::string(kTitle) + "since " + std::to_string(since_s) + "\n";
      for (size_t index = 0; index < std::size(kEvents); ++index)
        text += std::string(kEvents[index].key) + " " + std::to_string(events[index]) + "\n";
      const auto on_limit = signal(SIGXFSZ, SIG_IGN);
      const bool is_written = pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                              ftruncate(file, static_cast<off_t>(text.size())) == 0;
      signal(SIGXFSZ, on_limit);
      return is_written;
    }

   private:
    static uint64_t number(const std::string &text, const std::string &key, uint64_t otherwise) {
      const size_t line = text.find("\n" + key + " ");
      return line == std::string::npos ? otherwise : std::strtoull(text.c_str() + line + key.size() + 2, nullptr, 10);
    }
  };

  static constexpr size_t kMaxBytes = 1 << 12;
  static constexpr std::string_view kTitle = "mlgo-clang statistics 1\n";
  static constexpr int kPatienceMs = 1000;
  static constexpr uint64_t kLastS = 253'402'300'799;  // the end of the year 9999

  // The file with its lock, or -1 with errno. What somebody else may have put in its place, a link above all, is refused.
  int open_file(int flags) const {
    const int file = open(path_.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    struct stat status;
    if (file < 0)
      return -1;
    bool is_locked = false;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink > 1) {
      errno = EBADMSG;
    } else {
      for (int waited = 0; !(is_locked = flock(file, LOCK_EX | LOCK_NB) == 0) && errno == EWOULDBLOCK && waited < kPatienceMs;
           ++waited)
        usleep(1000);
    }
    if (is_locked)
      return file;
    const int reason = errno;
    close(file);
    errno = reason;
    return -1;
  }

  static std::string row(std::string text, uint64_t number) {
    const std::string digits = std::to_string(number);
    text.resize(std::max(text.size() + 1, 80 - digits.size()), ' ');
    return text + digits + "\n";
  }

  std::string folder() const { return path_.substr(0, path_.rfind('/') + 1); }

  void check_path() const {
    if (path_[0] != '/')
      fail("MLGO_STATS: expected the absolute path of a folder, found " +
           (path_.empty() ? "nothing; set it as in the build" : path_.substr(0, path_.rfind('/'))));
  }

  [[noreturn]] void fail_to(const std::string &verb, int file) const {
    const bool is_foreign = file >= 0 ? errno == EBADMSG : errno == EBADMSG || errno == ELOOP;
    fail("MLGO_STATS: " + path_ + ": cannot " + verb + " it: " +
         (is_foreign ? "it is no file of such statistics; remove it" : std::strerror(errno)));
  }

  std::string path_;
  bool lost_a_part_ = false;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_STATISTICS_H_
