// mlgo-clang, mlgo-clang++: clang with a trained policy, for any build.
//
// Made by compiler_opt.tools.deploy, which generates driver_config.h. Every command line goes to clang as it is; where
// something is compiled at a level that the policy was trained for, the pass plugin that carries the policy goes with
// it. A build never breaks over that: whatever fails with the policy is compiled again without it, and a warning says
// so. What is only preprocessed, checked, assembled or linked is clang's from the first moment.
//
// The environment may say otherwise than the deployment (1 for yes, 0 for no): MLGO_DISABLE, MLGO_STRICT,
// MLGO_NEVER_WORSE. `--mlgo-info` tells everything that an object depends on beside the command line.

#include "children.h"
#include "command_line.h"
#include "driver_config.h"
#include "text_bytes.h"

#include <climits>
#include <cstdlib>
#include <sys/ioctl.h>

namespace {

using namespace mlgo;
using Command = std::vector<std::string>;

bool setting(const char *name, bool deployed) {
  const char *value = std::getenv(name);
  return value && *value ? std::strcmp(value, "0") != 0 : deployed;
}

void say(const std::string &kind, const std::string &message) {
  write_all(STDERR_FILENO, kind + ": mlgo: " + message + "\n");
}

[[noreturn]] void fail(const std::string &message, int status = 1) {
  say("error", message);
  _exit(status);
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0 || size == sizeof path)
    fail("cannot tell where this program is: /proc is not mounted");
  return std::string(path, static_cast<size_t>(size));
}

// A program that can be run, and is not this one under another name.
bool is_compiler(const std::string &path) {
  struct stat status, own;
  return access(path.c_str(), X_OK) == 0 && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         stat("/proc/self/exe", &own) == 0 && (status.st_dev != own.st_dev || status.st_ino != own.st_ino);
}

// What one invocation has to work with.
class Driver {
 public:
  Driver(const std::string &invoked_as, Command arguments)
      : arguments_(std::move(arguments)), compiler_(choose(invoked_as)), name_("clang-" + std::to_string(compiler_.major)) {
    const std::string own = own_path();
    // Both names are looked at: somebody's link `c++` to mlgo-clang, and mlgo-clang++ started by any name.
    is_cpp_ = base_name(invoked_as).find("++") != std::string_view::npos ||
              base_name(own).find("++") != std::string_view::npos;
    plugin_ = own.substr(0, own.rfind('/', own.rfind('/') - 1)) + "/lib/" + compiler_.plugin;
    clang_ = find_clang();
    strict_ = setting("MLGO_STRICT", config::kStrict);
    never_worse_ = setting("MLGO_NEVER_WORSE", config::kNeverWorse);
    disabled_ = setting("MLGO_DISABLE", false);
  }

  [[noreturn]] void run() {
    if (arguments_.size() == 1 && arguments_[0] == "--mlgo-info")
      show_info();
    if (disabled_)
      become(plain_command());
    const CommandLine line(arguments_);
    if (!is_trained_for(line.level()) || !(line.compiles() || line.optimizes_at_link()))
      become(plain_command());
    const std::string wrong = plugin_problem();
    if (!wrong.empty()) {
      if (strict_)
        fail(wrong + "; deploy the policy again");
      say("warning", wrong + "; compiling with plain " + name_ + "; deploy the policy again");
      become(plain_command());
    }
    if (never_worse_ && line.measurable_output().empty())
      become(plain_command());  // What cannot be compared is never worse this way only.
    for (const char *variable : {"MLGO_INLINER_POLICY", "MLGO_INLINER_LOG", "MLGO_INLINER_LOG_DEFAULT",
                                 "MLGO_INLINER_SEED", "MLGO_INLINER_TEMPERATURE", "MLGO_INLINER_MODE",
                                 "MLGO_REGALLOC_POLICY", "MLGO_REGALLOC_LOG", "MLGO_REGALLOC_CHANNEL",
                                 "MLGO_REGALLOC_MODE"})
      unsetenv(variable);
    for (const char *variable : {"MLGO_INLINER_STRICT", "MLGO_REGALLOC_STRICT"}) {
      if (strict_)
        setenv(variable, "1", 1);
      else
        unsetenv(variable);
    }
    children_.emplace();
    if (never_worse_)
      compile_both_ways(line);
    compile(line);
  }

 private:
  static const config::Compiler &choose(const std::string &invoked_as) {
    const std::string name(base_name(invoked_as));
    const std::string suffix = name.substr(name.rfind('-') + 1);
    if (suffix.empty() || suffix.find_first_not_of("0123456789") != std::string::npos)
      return config::kCompilers[0];
    for (const config::Compiler &compiler : config::kCompilers)
      if (suffix == std::to_string(compiler.major))
        return compiler;
    fail(name + ": the policy was not deployed for clang-" + suffix + "; deploy it again with that --clang_path");
  }

  // The recorded one, else of the same version on PATH; empty when there is none.
  std::string find_clang() const {
    if (is_compiler(compiler_.clang))
      return compiler_.clang;
    const char *path = std::getenv("PATH");
    const std::string folders = path ? path : "/usr/bin";
    for (size_t start = 0; start <= folders.size();) {
      const size_t end = std::min(folders.find(':', start), folders.size());
      const std::string candidate = folders.substr(start, end - start) + "/" + name_;
      if (candidate[0] == '/' && end > start && is_compiler(candidate))
        return candidate;
      start = end + 1;
    }
    fail(std::string(compiler_.clang) + " is gone, and there is no " + name_ +
             " on PATH; install it, or deploy the policy again for another",
         127);
  }

  // What can be told without loading it, which may crash the compiler when the file is cut short.
  std::string plugin_problem() const {
    struct stat status;
    if (stat(plugin_.c_str(), &status) != 0 || access(plugin_.c_str(), R_OK) != 0)
      return plugin_ + ": " + std::strerror(errno);
    if (!S_ISREG(status.st_mode) || status.st_size != compiler_.plugin_bytes)
      return plugin_ + ": damaged or replaced (expected a file of " + std::to_string(compiler_.plugin_bytes) +
             " bytes, found " + (S_ISREG(status.st_mode) ? std::to_string(status.st_size) : "none") + ")";
    return "";
  }

  static bool is_trained_for(const std::string &level) {
    return std::find(std::begin(config::kLevels), std::end(config::kLevels), level) != std::end(config::kLevels);
  }

  Command plain_command() const {
    Command command = {clang_};
    // As a name like clang++-22 would have it; clang wants -cc1 to come first.
    if (arguments_.empty() || !starts_with(arguments_[0], "-cc1")) {
      if (is_cpp_)
        command.push_back("--driver-mode=g++");
      else if (base_name(clang_).find("++") != std::string_view::npos)
        command.push_back("--driver-mode=gcc");
    }
    command.insert(command.end(), arguments_.begin(), arguments_.end());
    return command;
  }

  Command policy_command(const CommandLine &line) const {
    Command options = {"--start-no-unused-arguments"};
    if (line.compiles()) {
      options.push_back("-fpass-plugin=" + plugin_);
      // After a crash the same is compiled again; whoever reports a bug wants that one's files.
      options.push_back("-fno-crash-diagnostics");
    }
    if (line.optimizes_at_link()) {
      options.push_back("-Xlinker");
      options.push_back("--load-pass-plugin=" + plugin_);
    }
    add_terminal(&options);
    options.push_back("--end-no-unused-arguments");
    Command command = plain_command();
    // First, so that whatever the user says wins.
    const size_t position = command.size() - arguments_.size();
    command.insert(command.begin() + static_cast<std::ptrdiff_t>(position), options.begin(), options.end());
    return command;
  }

  // The compiler writes into a pipe; the user sees what a terminal would have shown.
  static void add_terminal(Command *options) {
    const char *terminal = std::getenv("TERM");
    if (!isatty(STDERR_FILENO) || !terminal || std::strcmp(terminal, "dumb") == 0)
      return;
    if (!std::getenv("NO_COLOR"))
      options->push_back("-fcolor-diagnostics");
    winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
      options->push_back("-fmessage-length=" + std::to_string(size.ws_col));
  }

  [[noreturn]] void compile(const CommandLine &line) {
    const Outcome with_policy = run_child(policy_command(line), true);
    if (with_policy.ok()) {
      with_policy.replay();
      _exit(0);
    }
    if (strict_)
      fail_strictly(line, with_policy);
    const Outcome plain = run_child(plain_command(), false);
    if (plain.ok())
      warn_of(line, with_policy);
    end_like(plain);
  }

  // Plain first: its errors are the user's own, and what the policy's run leaves beside the object fits the object.
  [[noreturn]] void compile_both_ways(const CommandLine &line) {
    const std::string &output = line.measurable_output();
    const std::string plain_output = output + ".mlgo-" + std::to_string(getpid());
    const Outcome plain = run_child(plain_command(), true);
    if (!plain.ok() || rename(output.c_str(), plain_output.c_str()) != 0) {
      plain.replay();
      end_like(plain);
    }
    stash_ = plain_output;
    const Outcome with_policy = run_child(policy_command(line), true);
    if (!with_policy.ok()) {
      if (strict_) {
        unlink(plain_output.c_str());
        fail_strictly(line, with_policy);
      }
      keep_plain(line, plain, plain_output);
      warn_of(line, with_policy);
      _exit(0);
    }
    const std::optional<uint64_t> plain_bytes = TextBytes::of(plain_output);
    const std::optional<uint64_t> policy_bytes = TextBytes::of(output);
    if (plain_bytes && policy_bytes && *policy_bytes < *plain_bytes) {
      unlink(plain_output.c_str());
      with_policy.replay();
    } else {
      keep_plain(line, plain, plain_output);
    }
    _exit(0);
  }

  void keep_plain(const CommandLine &line, const Outcome &plain, const std::string &plain_output) {
    if (line.writes_side_files()) {
      // They are by now those of the compilation with the policy.
      unlink(plain_output.c_str());
      const Outcome again = run_child(plain_command(), false);
      if (!again.ok())
        end_like(again);
      return;
    }
    if (rename(plain_output.c_str(), line.measurable_output().c_str()) != 0)
      fail(line.measurable_output() + ": " + std::strerror(errno));
    plain.replay();
  }

  // Ends with the child when somebody has asked for that.
  Outcome run_child(const Command &command, bool keep_output) {
    const Outcome outcome = children_->run(command, keep_output);
    if (Children::signal() != 0 || outcome.interrupted()) {
      if (!stash_.empty())
        unlink(stash_.c_str());
      outcome.replay();
      Outcome end = outcome;
      if (Children::signal() != 0)
        end.status = Children::signal();
      end_like(end);
    }
    return outcome;
  }

  void warn_of(const CommandLine &line, const Outcome &with_policy) const {
    say("warning", subject(line) + ": compiled with plain " + name_ + ", since it failed with the policy: " +
                       reason(with_policy));
  }

  // The user's own errors are shown as they are; those that the policy has made, and crashes, are one line.
  [[noreturn]] void fail_strictly(const CommandLine &line, const Outcome &with_policy) const {
    if (!has_crashed(with_policy) && telling_line(with_policy.err, true).empty()) {
      with_policy.replay();
      end_like(with_policy);
    }
    fail(subject(line) + ": failed with the policy: " + reason(with_policy));
  }

  std::string subject(const CommandLine &line) const {
    return line.compiles() ? line.source() : line.measurable_output();
  }

  // Of a bug, and not of a limit on its time or files. clang tells its own crash by the exit status a shell would give.
  static bool has_crashed(const Outcome &outcome) {
    const int number = WIFSIGNALED(outcome.status) ? WTERMSIG(outcome.status) : WEXITSTATUS(outcome.status) - 128;
    return number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGILL || number == SIGFPE ||
           number == SIGTRAP;
  }

  std::string reason(const Outcome &outcome) const {
    std::string text = telling_line(outcome.err, true);
    if (text.empty() && has_crashed(outcome))
      return "the compiler crashed";
    if (text.empty())
      text = telling_line(outcome.err, false);
    if (!text.empty())
      return text;
    return WIFSIGNALED(outcome.status) ? std::string("the compiler died: ") + strsignal(WTERMSIG(outcome.status))
                                       : "exit status " + std::to_string(WEXITSTATUS(outcome.status));
  }

  // The first line that is an error, less that word; of those about the policy only, if so asked.
  std::string telling_line(const std::string &text, bool about_policy) const {
    static constexpr std::string_view kError = "error: ";
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      const std::string line = without_colors(text.substr(start, end - start));
      const size_t error = line.find(kError);
      if (error != std::string::npos &&
          (!about_policy || line.find(plugin_) != std::string::npos || line.find("mlgo: ") != std::string::npos)) {
        const size_t mlgo = line.find("mlgo: ", error);
        return line.substr(mlgo != std::string::npos ? mlgo + 6 : error + kError.size());
      }
      start = end + 1;
    }
    return "";
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

  [[noreturn]] void show_info() const {
    std::string text = "policy: " + std::string(config::kPolicy) + "\nlevels:";
    for (const char *level : config::kLevels)
      text += std::string(" -") + level;
    text += "\nplugin checksum: " + std::string(compiler_.checksum);
    text += std::string("\nnever worse: ") + (never_worse_ ? "yes" : "no") + "\nstrict: " + (strict_ ? "yes" : "no") +
            "\ndisabled: " + (disabled_ ? "yes" : "no") + "\nclang: " + clang_ + identity(clang_) +
            "\nplugin: " + plugin_ + identity(plugin_) + "\n";
    write_all(STDOUT_FILENO, text);
    _exit(0);
  }

  // What tells one state of a file from another.
  static std::string identity(const std::string &path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0)
      return " (" + std::string(std::strerror(errno)) + ")";
    const std::string nanoseconds = std::to_string(1'000'000'000 + status.st_mtim.tv_nsec).substr(1);
    return " (" + std::to_string(status.st_size) + " bytes of " + std::to_string(status.st_mtim.tv_sec) + "." +
           nanoseconds + ")";
  }

  const Command arguments_;
  const config::Compiler &compiler_;
  const std::string name_;
  bool is_cpp_ = false;
  bool strict_ = false, never_worse_ = false, disabled_ = false;
  std::string plugin_, clang_;
  std::string stash_;  // A file that must not stay when we are interrupted.
  std::optional<Children> children_;
};

}  // namespace

int main(int argc, char **argv) {
  Driver(argc > 0 ? argv[0] : "mlgo-clang", Command(argv + std::min(argc, 1), argv + argc)).run();
}
