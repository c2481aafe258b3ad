// Finds out why a compilation with the policy or options failed, and whether these may be the cause.

#ifndef COMPILER_OPT_NATIVE_DRIVER_FAILURES_H_
#define COMPILER_OPT_NATIVE_DRIVER_FAILURES_H_

#include "children.h"
#include "configuration.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <utility>
#include <vector>

namespace mlgo {

class Failure {
 public:
  // With these plugins and options of LLVM's passes.
  Failure(const Outcome &outcome, std::vector<std::string> plugins, std::vector<std::string> options)
      : outcome_(outcome), plugins_(std::move(plugins)), options_(std::move(options)) {}

  // Whether the compiler crashed, rather than exceeded a limit on its time or files. clang reports a crash of its own
  // by the exit status that a shell would return.
  bool is_crash() const {
    const int number = WIFSIGNALED(outcome_.status) ? WTERMSIG(outcome_.status) : WEXITSTATUS(outcome_.status) - 128;
    return number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGILL || number == SIGFPE ||
           number == SIGTRAP;
  }

  // Whether the compiler exited normally, and none of its errors is about the policy.
  bool is_user_error() const {
    return !is_crash() && !WIFSIGNALED(outcome_.status) && first_error(true).empty();
  }

  std::string reason() const {
    std::string text = first_error(true);
    if (text.empty() && is_crash())
      return "the compiler crashed";
    if (text.empty())
      text = first_error(false);
    if (!text.empty())
      return text;
    return WIFSIGNALED(outcome_.status) ? std::string("the compiler died: ") + strsignal(WTERMSIG(outcome_.status))
                                        : "exit status " + std::to_string(WEXITSTATUS(outcome_.status));
  }

 private:
  // The message of the first error, or of the first error about the policy; empty if there is none.
  std::string first_error(bool about_policy) const {
    static constexpr std::string_view kError = "error: ", kParsing = "(LLVM option parsing): ";
    const std::string &text = outcome_.err;
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      const std::string line = without_colors(text.substr(start, end - start));
      if (const size_t parsing = line.find(kParsing); parsing != std::string::npos && names_option(line))
        return line.substr(parsing + kParsing.size());
      const size_t error = line.find(kError);
      if (error != std::string::npos &&
          (!about_policy || names_plugin(line) || line.find("mlgo: ") != std::string::npos)) {
        const size_t mlgo = line.find("mlgo: ", error);
        return line.substr(mlgo != std::string::npos ? mlgo + 6 : error + kError.size());
      }
      start = end + 1;
    }
    return "";
  }

  bool names_plugin(const std::string &line) const {
    return std::any_of(plugins_.begin(), plugins_.end(),
                       [&](const std::string &plugin) { return line.find(plugin) != std::string::npos; });
  }

  bool names_option(const std::string &line) const {
    return std::any_of(options_.begin(), options_.end(), [&](const std::string &option) {
      return line.find("-" + pass_option_name(option)) != std::string::npos;
    });
  }

  static std::string without_colors(const std::string &line) {
    std::string result;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\033')
        i = std::min(line.find('m', i), line.size());
      else
        result += line[i];
    }
    return result;
  }

  const Outcome &outcome_;
  const std::vector<std::string> plugins_, options_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_FAILURES_H_
