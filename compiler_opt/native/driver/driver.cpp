// mlgo-clang, mlgo-clang++: clang with a trained policy, for any build.
//
// Built by compiler_opt.tools.deploy, which generates driver_config.h. Command lines are passed to clang unchanged, except
// that compilations at a level of the policy also load its pass plugin. The policy never breaks a build: what fails with
// it is compiled again without it, with a warning, unless an input can be read only once, or a compiler cache would keep
// the object as the policy's. Preprocessing, checking, assembling and linking are clang's alone.
//
// Environment variables override the deployment (1 for yes, 0 for no): MLGO_DISABLE, MLGO_STRICT, MLGO_NEVER_WORSE.
// `--mlgo-info` prints everything, besides the command line, that an object depends on.

#include "children.h"
#include "command_line.h"
#include "driver_config.h"
#include "elf_file.h"
#include "environment.h"
#include "failures.h"
#include "identity.h"
#include "inputs.h"
#include "recording.h"

#include <sys/ioctl.h>

namespace {

using namespace mlgo;
using Command = std::vector<std::string>;

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
    strict_ = setting("MLGO_STRICT").value_or(config::kStrict);
    never_worse_ = setting("MLGO_NEVER_WORSE").value_or(config::kNeverWorse);
    disabled_ = setting("MLGO_DISABLE").value_or(false);
  }

  [[noreturn]] void run() {
    if (arguments_.size() == 1 && arguments_[0] == "--mlgo-info")
      show_info();
    if (disabled_)
      become(plain_command());
    const CommandLine line(arguments_);
    if (!is_trained_for(line.level()) || !(line.compiles() || line.optimizes_at_link()) ||
        line.names_what_is_read_only_once())
      become(plain_command());
    if (!strict_ && !setting("MLGO_STRICT").has_value()) {
      cache_ = cache_at_work();
      strict_ = !cache_.empty();
    }
    const std::string wrong = plugin_problem();
    if (!wrong.empty()) {
      if (strict_)
        fail(wrong + "; deploy the policy again" + because_of_cache());
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
    inherited_ = inherited_read_only_once();
    if (never_worse_)
      compile_both_ways(line);
    compile(line);
  }

 private:
  static const config::Compiler &choose(const std::string &invoked_as) {
    const std::string name(base_name(invoked_as));
    const size_t dash = std::min(name.rfind('-'), name.size());
    const std::string program = name.substr(0, dash), suffix = name.substr(std::min(dash + 1, name.size()));
    for (const config::Compiler &compiler : config::kCompilers)
      if (suffix == std::to_string(compiler.major))
        return compiler;
    // Somebody's cc-2024 tells no version.
    const bool tells_version = ends_with(program, "clang") || ends_with(program, "clang++");
    if (!tells_version || suffix.empty() || suffix.find_first_not_of("0123456789") != std::string::npos)
      return config::kCompilers[0];
    fail(name + ": the policy was not deployed for clang-" + suffix + "; deploy it again with that --clang_path");
  }

  // The recorded one, else of the same version on PATH; empty when there is none.
  std::string find_clang() const {
    if (is_compiler(compiler_.clang))
      return compiler_.clang;
    const std::string other = compiler_on_path(name_);
    if (!other.empty())
      return other;
    fail(std::string(compiler_.clang) + " is gone, and there is no " + name_ +
             " on PATH; install it, or deploy the policy again for another",
         127);
  }

  // What can be told without loading it, which may crash the compiler; one of another policy would even work.
  std::string plugin_problem() const {
    struct stat status;
    if (stat(plugin_.c_str(), &status) != 0 || access(plugin_.c_str(), R_OK) != 0)
      return plugin_ + ": " + std::strerror(errno);
    if (!S_ISREG(status.st_mode) || status.st_size != compiler_.plugin_bytes)
      return plugin_ + ": damaged or replaced (expected a file of " + std::to_string(compiler_.plugin_bytes) +
             " bytes, found " + (S_ISREG(status.st_mode) ? std::to_string(status.st_size) : "none") + ")";
    const std::string found = hexadecimal(fingerprint(read_file(plugin_)));
    if (found != compiler_.fingerprint)
      return plugin_ + ": damaged or replaced (expected the content " + compiler_.fingerprint + ", found " + found + ")";
    return "";
  }

  static bool is_trained_for(const std::string &level) {
    return std::find(std::begin(config::kLevels), std::end(config::kLevels), level) != std::end(config::kLevels);
  }

  Command plain_command(const Command &first = {}) const {
    Command command = {clang_};
    // As a name like clang++-22 would have it; clang wants -cc1 to come first.
    if (arguments_.empty() || !starts_with(arguments_[0], "-cc1")) {
      if (is_cpp_)
        command.push_back("--driver-mode=g++");
      else if (base_name(clang_).find("++") != std::string_view::npos)
        command.push_back("--driver-mode=gcc");
    }
    command.insert(command.end(), first.begin(), first.end());
    command.insert(command.end(), arguments_.begin(), arguments_.end());
    return command;
  }

  Command policy_options(const CommandLine &line) const {
    Command options;
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
    return options;
  }

  // With options of ours, which no record tells of.
  Command command_with(Command options, const CommandLine &line) {
    Command last;
    if (line.is_recorded())
      last = record_what_is(run_child(plain_command({kShowRecords}), true).err);
    if (!line.database().empty()) {
      run_child(plain_command({kOnlyWriteDatabase}), true);
      repair_database(line.database());
      last.insert(last.end(), {"-MJ", "/dev/null"});
    }
    options.insert(options.begin(), "--start-no-unused-arguments");
    options.push_back("--end-no-unused-arguments");
    // First, so that whatever the user says wins.
    Command command = plain_command(options);
    const auto users = command.end() - static_cast<std::ptrdiff_t>(arguments_.size());
    command.insert(std::find(users, command.end(), "--"), last.begin(), last.end());
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
    const IncludeList includes;
    Command options = policy_options(line);
    if (line.compiles())
      for (const std::string &option : includes.options())
        options.push_back(option);
    const Outcome with_policy = run_child(command_with(options, line), true);
    if (with_policy.ok())
      finish(with_policy);
    if (strict_)
      fail_after(with_policy, line, because_of_cache());
    const std::string pipe = includes.read_only_once();
    if (!pipe.empty())
      fail_after(with_policy, line, "; not compiled again, since " + pipe + " can be read only once");
    const Outcome plain = run_child(plain_command(), false, true);
    if (plain.ok())
      warn_of(line, with_policy);
    end_like(plain);
  }

  // Plain first: its errors are the user's own, and what the policy's run leaves beside the object fits the object.
  [[noreturn]] void compile_both_ways(const CommandLine &line) {
    const std::string &output = line.measurable_output();
    const std::string plain_output = output + ".mlgo-" + std::to_string(getpid());
    const IncludeList includes;
    const Command list = line.compiles() ? includes.options() : Command();
    const Outcome plain = run_child(command_with(list, line), true);
    if (!plain.ok()) {
      plain.replay();
      end_like(plain);
    }
    if (!includes.read_only_once().empty() || rename(output.c_str(), plain_output.c_str()) != 0)
      finish(plain);
    stash_ = plain_output;
    const Outcome with_policy = run_child(command_with(policy_options(line), line), true, true);
    if (!with_policy.ok()) {
      if (strict_) {
        unlink(plain_output.c_str());
        fail_after(with_policy, line, because_of_cache());
      }
      warn_of(line, with_policy);
    }
    if (!with_policy.ok() || !is_better(output, plain_output)) {
      keep_plain(line, plain_output);
      finish(plain);
    }
    unlink(plain_output.c_str());
    finish(with_policy);
  }

  // Smaller, and what others can refer to is all there: else they were not made of the same source.
  static bool is_better(const std::string &output, const std::string &plain_output) {
    const ElfFile with_policy(output), plain(plain_output);
    const std::optional<uint64_t> bytes = with_policy.text_bytes(), plain_bytes = plain.text_bytes();
    return bytes && plain_bytes && *bytes < *plain_bytes && with_policy.strong_symbols() &&
           with_policy.strong_symbols() == plain.strong_symbols();
  }

  [[noreturn]] static void finish(const Outcome &outcome) {
    outcome.replay();
    _exit(0);
  }

  void keep_plain(const CommandLine &line, const std::string &plain_output) {
    if (line.writes_side_files()) {
      // They are by now those of the compilation with the policy.
      unlink(plain_output.c_str());
      const Outcome again = run_child(plain_command(), true, true);
      if (!again.ok()) {
        again.replay();
        end_like(again);
      }
    } else if (rename(plain_output.c_str(), line.measurable_output().c_str()) != 0) {
      fail(line.measurable_output() + ": " + std::strerror(errno));
    }
  }

  // Ends with the child when somebody has asked for that. When something is compiled again, what an earlier compiler
  // may have read to its end is hidden from this one.
  Outcome run_child(const Command &command, bool keep_output, bool again = false) {
    const Outcome outcome = children_->run(command, keep_output, again ? inherited_ : std::vector<int>());
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
                       Failure(with_policy, plugin_).reason());
  }

  // The user's own errors are shown as they are; those that the policy has made, crashes and sudden ends are one line.
  [[noreturn]] void fail_after(const Outcome &with_policy, const CommandLine &line, const std::string &why) const {
    const Failure failure(with_policy, plugin_);
    if (failure.is_users_own())
      with_policy.replay();
    else
      say("error", subject(line) + ": failed with the policy: " + failure.reason() + why);
    if (strict_ && failure.is_crash())
      _exit(1);
    end_like(with_policy);
  }

  std::string because_of_cache() const {
    return cache_.empty() ? "" : "; not compiled without it, since " + cache_ + " would keep that (MLGO_STRICT=0 lets it)";
  }

  std::string subject(const CommandLine &line) const {
    return line.compiles() ? line.source() : line.measurable_output();
  }

  [[noreturn]] void show_info() {
    children_.emplace();
    std::string text = "policy: " + std::string(config::kPolicy) + "\nlevels:";
    for (const char *level : config::kLevels)
      text += std::string(" -") + level;
    const auto yes_or_no = [](bool yes) { return yes ? "yes" : "no"; };
    text += std::string("\nnever worse: ") + yes_or_no(never_worse_) + "\nstrict: " + yes_or_no(strict_) +
            "\ndisabled: " + yes_or_no(disabled_) + "\nclang: " + clang_ + " (" + identity(clang_) + ")\n";
    for (const std::string &library : libraries_of(clang_, &*children_))
      if (starts_with(base_name(library), "libLLVM") || starts_with(base_name(library), "libclang"))
        text += "library: " + library + " (" + identity(library) + ")\n";
    text += "plugin: " + plugin_ + " (" + identity_by_content(plugin_) + ")\ndriver: " +
            identity_by_content("/proc/self/exe") + "\n";
    write_all(STDOUT_FILENO, text);
    _exit(0);
  }

  const Command arguments_;
  const config::Compiler &compiler_;
  const std::string name_;
  bool is_cpp_ = false;
  bool strict_ = false, never_worse_ = false, disabled_ = false;
  std::string plugin_, clang_;
  std::string cache_;  // What would keep a plain object for one of the policy.
  std::vector<int> inherited_;
  std::string stash_;  // A file that must not stay when we are interrupted.
  std::optional<Children> children_;
};

}  // namespace

int main(int argc, char **argv) {
  Driver(argc > 0 ? argv[0] : "mlgo-clang", Command(argv + std::min(argc, 1), argv + argc)).run();
}
