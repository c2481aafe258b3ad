// mlgo-clang, mlgo-clang++: clang with trained policies and options of LLVM's passes, for any build.
//
// Built by compiler_opt.tools.deploy, which generates what config.h declares. Command lines are passed to clang unchanged,
// except that compilations at a level of a policy also load its pass plugin, and those at a level that has options get
// them; several policies may decide at a level, each about something else. A compilation that fails with them is repeated
// without, with a warning, unless an input can be read only once, or a compiler cache would store the object as theirs.
//
// `--mlgo-help` lists its own commands and environment variables (`deployed.h`).

#include "children.h"
#include "command_line.h"
#include "config.h"
#include "decision_log.h"
#include "deployed.h"
#include "elf_file.h"
#include "environment.h"
#include "failures.h"
#include "inputs.h"
#include "names.h"
#include "never_worse.h"
#include "pass_options.h"
#include "policies.h"
#include "recording.h"
#include "settings.h"
#include "statistics.h"

#include <tuple>

namespace {

using namespace mlgo;
using Words = std::vector<std::string>;

// One invocation of mlgo-clang.
class Driver {
 public:
  Driver(const std::string &invoked_as, Words arguments)
      : arguments_(std::move(arguments)), invoked_as_(invoked_as), compiler_(compiler_called(invoked_as_)) {
    const std::string own = own_path();
    // Either name selects C++: that of the command (a link `c++` to mlgo-clang), or that of the file (mlgo-clang++).
    is_cpp_ = invoked_as_.mode() == "g++" || base_name(own).find("++") != std::string_view::npos;
    prefix_ = own.substr(0, own.rfind('/', own.rfind('/') - 1));
    policies_ = deployed_policies(static_cast<size_t>(&compiler_ - config::kCompilers), prefix_);
    std::tie(clang_, name_) = find_clang(compiler_, prefix_);
  }

  [[noreturn]] void run() {
    if (arguments_.size() == 1 && is_own_command(arguments_[0]))
      run_own_command(arguments_[0], invoked_as_.called(),
                      {compiler_, policies_, settings_, prefix_, clang_, name_}, statistics_);
    if (settings_.disabled)
      compile_plainly(Event::kDisabled);
    // With FORCE_CLANG_DIAGNOSTICS_CRASH, whatever clang is asked ends in a report of a crash.
    if ((invoked_as_.mode() != "gcc" && invoked_as_.mode() != "g++") || std::getenv("FORCE_CLANG_DIAGNOSTICS_CRASH"))
      compile_plainly(Event::kUnsupported);
    const CommandLine line = read_command_line();
    keep_policies([&](const Policy &policy) {
      const bool decides = line.compiles() || line.optimizes_at_link();
      return (policy.sets_options() ? line.compiles_for(compiler_.architecture) : decides) && policy.decides_at(line.level());
    });
    if (line.compiles() || line.generates_code_at_link())
      for (const std::string &option : PassOptions(compiler_).at(line.level(), line.architecture()))
        if (!line.sets_pass_option(option))
          options_.push_back(option);
    if (!line.generates_code())
      compile_plainly(Event::kNoCode);
    if (!line.can_read_sources_again())
      compile_plainly(Event::kReadOnce);
    if (policies_.empty() && options_.empty())
      compile_plainly(Event::kOtherLevel);
    if (line.names_one_shot_input())
      compile_plainly(Event::kReadOnce);
    if (!settings_.strict && !boolean_variable("MLGO_STRICT").has_value()) {
      cache_ = active_cache();
      settings_.strict = !cache_.empty();
    }
    const bool is_alone = policies_.size() == 1 && options_.empty();
    keep_policies([&](Policy &policy) { return is_usable(policy, is_alone); });
    if (policies_.empty() && options_.empty())
      compile_plainly(Event::kFiles);
    check_process();
    // A smaller object is no better if one of the policies is for speed.
    settings_.never_worse &=
        std::all_of(policies_.begin(), policies_.end(), [](const Policy &each) { return each.is_for_size(); });
    if (settings_.never_worse && line.measurable_output().empty())
      compile_plainly(Event::kNotComparable);  // There is no output whose sizes could be compared.
    configure_plugins(policies_, compiler_.version, settings_.strict);
    log_.emplace();
    children_.emplace();
    inherited_ = inherited_one_shot_inputs();
    if (!line.database_folder().empty())
      write_fragment(line);
    compile(line);
  }

 private:
  CommandLine read_command_line() {
    const CommandLine line(arguments_);
    if (!line.depends_on_configuration(PassOptions(compiler_), invoked_as_.names_target()))
      return line;
    check_process();
    Children children;
    const Outcome printed = children.run(plain_command({kPrintCommands}), true);
    if (const int number = Children::signal())
      exit_like({number, "", ""});
    return CommandLine(arguments_, Configuration::parse(printed.err));
  }

  // Whether this process can watch a compiler.
  void check_process() {
    const std::string problem = process_problem();
    if (problem.empty())
      return;
    if (settings_.strict)
      refuse(problem + cache_note());
    print_message("warning", problem + "; compiling with plain " + name_);
    compile_plainly(Event::kProcess);
  }

  [[noreturn]] void compile_plainly(Event reason) {
    statistics_.count(reason);
    children_.reset();  // It handles signals.
    Executable(plain_command()).exec();
  }

  template <typename Predicate> void keep_policies(Predicate is_kept) {
    std::vector<Policy> kept;
    for (Policy &policy : policies_)
      if (is_kept(policy))
        kept.push_back(policy);
    policies_ = std::move(kept);
  }

  // Checks the files of a policy that decides here. What cannot be used is left out, with a warning; if strict, it is an error.
  bool is_usable(Policy &policy, bool is_alone) {
    std::string problem = policy.library_problem(), consequence = "; compiling without these decisions";
    bool usable = problem.empty();
    if (usable) {
      problem = policy.decisions_problem();
      usable = problem.empty() || policy.has_network();
    }
    if (problem.empty())
      return true;
    if (settings_.strict)
      refuse(problem + "; deploy the policy again" + cache_note());
    if (usable)
      policy.drop_decisions();
    else
      consequence = is_alone ? "; compiling with plain " + name_ : policy.consequence_without();
    print_message("warning", problem + consequence + "; deploy the policy again");
    statistics_.lose_a_part();
    return usable;
  }

  Command plain_command(const Words &first = {}) const {
    Command command = {clang_, {clang_}};
    if (arguments_.empty() || !starts_with(arguments_[0], "-cc1"))  // which must be the first argument
      command = invoked_as_.command(clang_, is_cpp_);
    command.arguments.insert(command.arguments.end(), first.begin(), first.end());
    command.arguments.insert(command.arguments.end(), arguments_.begin(), arguments_.end());
    return command;
  }

  // What a command line gets: the plugins of the policies, and options of LLVM's passes.
  Words additions(const CommandLine &line) const {
    Words options;
    if (line.compiles()) {
      for (const Policy &policy : policies_)
        options.push_back("-fpass-plugin=" + policy.library());
      for (const std::string &option : set_options_by_function(policies_) ? Words() : options_)
        options.insert(options.end(), {"-Xclang", "-mllvm", "-Xclang", option});  // which precede clang's own -mllvm
      // After a crash the source is compiled again without the policy; only that crash would be clang's own bug.
      options.push_back("-fno-crash-diagnostics");
    }
    if (line.optimizes_at_link())
      for (const Policy &policy : policies_)
        if (!policy.sets_options())
          options.insert(options.end(), {"-Xlinker", "--load-pass-plugin=" + policy.library()});
    if (line.generates_code_at_link())
      for (const std::string &option : options_)
        options.insert(options.end(), {"-Xlinker", std::string(kPluginOption) + option});
    return options;
  }

  // The user's command line with additional options, which are not recorded in objects or databases.
  Command command_with(Words options, const CommandLine &line) {
    Words last = recorded(line);
    if (!line.database().empty()) {
      run_child(plain_command({kDriverOnly}), true);
      repair_database(line.path(line.database()));
      last.insert(last.end(), {"-MJ", "/dev/null"});
    }
    const Words terminal = terminal_options();
    options.insert(options.end(), terminal.begin(), terminal.end());
    options.insert(options.begin(), "--start-no-unused-arguments");
    options.push_back("--end-no-unused-arguments");
    // Ours come first, so that the user's options override them.
    Command command = plain_command(options);
    insert_last(last, &command);
    return command;
  }

  // The options by which an object that contains its command line contains the user's.
  const Words &recorded(const CommandLine &line) {
    if (line.is_recorded() && recorded_.empty())
      recorded_ = record_options(run_child(plain_command({kPrintCommands}), true).err);
    return recorded_;
  }

  // Has clang write its fragment of a compilation database, and from now on leaves the option for that out.
  void write_fragment(const CommandLine &line) {
    const auto option = std::find(arguments_.begin(), arguments_.end(), kFragments);
    if (option == arguments_.end() || option + 1 == arguments_.end() || option[1] != line.database_folder())
      compile_plainly(Event::kUnsupported);  // It is in a file, or its value is.
    const FragmentFolder fragments(line.path(line.database_folder()));
    Command command = plain_command({kDriverOnly});
    if (!fragments.path().empty())
      insert_last({kFragments, fragments.path()}, &command);
    run_child(command, true);
    fragments.publish();
    recorded(line);
    arguments_.erase(option, option + 2);
  }

  // Adds options after the user's own.
  void insert_last(const Words &options, Command *command) const {
    Words &words = command->arguments;
    const auto users = words.end() - static_cast<std::ptrdiff_t>(arguments_.size());
    words.insert(std::find(users, words.end(), "--"), options.begin(), options.end());
  }

  [[noreturn]] void compile(const CommandLine &line) {
    const IncludeList includes;
    Words options = additions(line);
    if (line.compiles())
      for (const std::string &option : includes.options())
        options.push_back(option);
    if (edits_concern(options))
      compile_plainly(Event::kUnsupported);
    output_.emplace(line.measurable_output());
    const Outcome with_policy = run_child(command_with(options, line), true);
    const std::string pipe = includes.first_one_shot(line.path(""));
    if (with_policy.ok()) {
      if (settings_.never_worse && pipe.empty())
        keep_smaller(line, with_policy);
      finish_with_policy(with_policy);
    }
    if (!settings_.strict && !pipe.empty())
      fail_after(with_policy, line, "; not compiled again, since " + pipe + " can be read only once");
    fall_back(line, with_policy);
  }

  // Compiles without the policy, unless strict.
  [[noreturn]] void fall_back(const CommandLine &line, const Outcome &with_policy) {
    if (settings_.strict)
      fail_after(with_policy, line, cache_note());
    const Outcome plain = run_child(plain_command(), false, true);
    if (plain.ok())
      warn_about_fallback(line, with_policy);
    statistics_.count(!plain.ok() ? Event::kUserError : failure_of(with_policy).is_crash() ? Event::kCrash : Event::kFailure);
    exit_like(plain);
  }

  // Keeps the policy's object, and says that never worse was not applied to it.
  [[noreturn]] void keep_unmeasured(const Outcome &with_policy, const std::string &reason) {
    print_message("warning", output_->path() + ": not compared with plain " + name_ + "'s (never worse): " + reason);
    finish_with_policy(with_policy);
  }

  // Compiles again, without the policy, unless the object is below the bound. Keeps the better, with its own side files.
  [[noreturn]] void keep_smaller(const CommandLine &line, const Outcome &with_policy) {
    if (!output_->is_written())
      keep_unmeasured(with_policy, "the compiler wrote another file");
    const std::optional<uint64_t> bytes = ElfFile(output_->path()).text_bytes();
    if (bytes && *bytes <= settings_.never_worse_above_kb * 1000)
      finish_with_policy(with_policy);
    if (!output_->set_aside())
      keep_unmeasured(with_policy, std::string("it cannot be moved aside: ") + std::strerror(errno));
    const Outcome plain = run_child(command_with({}, line), true, true);
    if (plain.ok() && !is_better(output_->aside(), output_->path())) {
      output_->drop_aside();
      statistics_.count(Event::kPlainIsBetter);
      finish(plain);
    }
    if (plain.ok() && line.writes_side_files()) {
      output_->drop_aside();
      log_->clear();
      const Outcome again = run_child(command_with(additions(line), line), true, true);
      if (!again.ok())
        fall_back(line, again);
    } else if (!output_->put_back()) {
      fail(output_->path() + ": " + std::strerror(errno));
    }
    finish_with_policy(with_policy);
  }

  [[noreturn]] void finish_with_policy(const Outcome &outcome) {
    log_->keep();
    statistics_.count(Event::kUsed);
    finish(outcome);
  }

  // Passes on what a compiler has printed. Meanwhile signals end this process, as there is no compiler any more.
  bool replay(const Outcome &outcome) {
    children_.reset();
    return outcome.replay();
  }

  [[noreturn]] void finish(const Outcome &outcome) {
    if (!replay(outcome))
      fail(std::string("the output of the compiler cannot be passed on: ") + std::strerror(errno));
    _exit(0);
  }

  // Runs a command; ends this process too if a signal asks for that. With `again`, inherited files that an earlier
  // compiler may have read to their end are hidden.
  Outcome run_child(const Command &command, bool keep_output, bool again = false) {
    if (again)  // What clang appends to files is there already.
      for (const char *variable : {"CC_PRINT_OPTIONS", "CC_PRINT_HEADERS", "CC_PRINT_PROC_STAT", "CC_LOG_DIAGNOSTICS"})
        if (std::getenv((std::string(variable) + "_FILE").c_str()))
          unsetenv(variable);
    const Outcome outcome = children_->run(command, keep_output, again ? inherited_ : std::vector<int>());
    if (Children::signal() != 0 || outcome.interrupted()) {
      if (output_)
        output_->drop_aside();
      outcome.replay(/*waits=*/false);
      exit_like({Children::signal() != 0 ? Children::signal() : outcome.status, "", ""});
    }
    return outcome;
  }

  Failure failure_of(const Outcome &with_policy) const {
    Words plugins;
    for (const Policy &policy : policies_)
      plugins.push_back(policy.library());
    return Failure(with_policy, std::move(plugins), options_);
  }

  void warn_about_fallback(const CommandLine &line, const Outcome &with_policy) const {
    print_message("warning", subject(line) + ": compiled with plain " + name_ + ", since it failed with the " + addition() +
                       ": " + failure_of(with_policy).reason());
  }

  // Shows the user's own errors unchanged, and one line for any other failure.
  [[noreturn]] void fail_after(const Outcome &with_policy, const CommandLine &line, const std::string &why) {
    const Failure failure = failure_of(with_policy);
    statistics_.count(failure.is_user_error() ? Event::kUserError : Event::kRefused);
    if (failure.is_user_error())
      replay(with_policy);
    else
      print_message("error", subject(line) + ": failed with the " + addition() + ": " + failure.reason() + why);
    if (settings_.strict && failure.is_crash())
      _exit(1);
    exit_like(with_policy);
  }

  std::string addition() const { return any_decides(policies_) ? "policy" : "deployed options"; }

  std::string cache_note() const {
    return cache_.empty() ? "" : "; not compiled without it, since " + cache_ + " would keep that (MLGO_STRICT=0 allows it)";
  }

  std::string subject(const CommandLine &line) const {
    return line.compiles() ? line.source() : line.measurable_output();
  }

  // Fails for lack of something that a policy or options need.
  [[noreturn]] void refuse(const std::string &problem) const {
    statistics_.count(Event::kRefused);
    fail(problem);
  }

  Words arguments_;
  const ProgramName invoked_as_;
  const config::Compiler &compiler_;
  std::string name_;  // of the compiler, for messages
  bool is_cpp_ = false;
  Settings settings_;
  Statistics statistics_;
  std::string prefix_, clang_;
  std::vector<Policy> policies_;  // all of them; from `run` on, those that decide in this compilation
  Words options_;      // of LLVM's passes, for this compilation
  std::string cache_;  // the compiler cache that will store the object, if any
  std::vector<int> inherited_;
  Words recorded_;
  std::optional<Output> output_;
  std::optional<DecisionLog> log_;
  std::optional<Children> children_;
};

}  // namespace

int main(int argc, char **argv) {
  open_standard_streams();
  Driver(argc > 0 ? argv[0] : "mlgo-clang", Words(argv + std::min(argc, 1), argv + argc)).run();
}
