// Parses a clang command line as far as mlgo-clang needs it.

#ifndef COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_
#define COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_

#include "configuration.h"
#include "files.h"
#include "inputs.h"
#include "pass_options.h"
#include "words.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace mlgo {

// A parsed command line.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::string> &arguments) {
    expand(arguments);
    read();
  }

  // With what clang has printed for the command line.
  CommandLine(const std::vector<std::string> &arguments, const Configuration &configuration) {
    expand(configuration.options);
    expand(arguments);
    read();
    lld_ = configuration.links_by_lld && !is_overridden();
    generates_code_at_link_ = configuration.links_by_plugin && !is_overridden();
    architecture_ = configuration.architecture;
    pass_options_ = configuration.pass_options;
    if (!sources_.empty())
      level_ = configuration.level;
    stops_early_ |= configuration.records_itself || !configuration.has_commands || (!sources_.empty() && !configuration.compiles);
  }

  // Whether clang must be asked what it makes of the command line: for a configuration file that it names, for the
  // default linker, or since something else than its options may have the last word about the level. If there are options
  // of LLVM's passes, also for all links that generate code; if they depend on the target, where it is not written out.
  bool depends_on_configuration(const PassOptions &options, bool has_target_in_name) const {
    const bool hides_target = names_machine_ || (has_target_in_name && architecture_.empty());
    return is_complete_ && !stops_early_ &&
           (names_configuration_ || hides_level_ || is_overridden() || may_use_codeview() ||
            (hides_target && options.depend_on_architecture()) ||
            (links_with_lto() && (!options.empty() || (!thin_ && !names_linker_))));
  }

  // Whether LLVM's passes run, here or in the linker.
  bool generates_code() const {
    return !stops_early_ && (!sources_.empty() || !is_complete_ || !can_read_again_ || links_with_lto());
  }
  // Whether all arguments are known, and all sources can be read a second time.
  bool can_read_sources_again() const { return is_complete_ && can_read_again_; }
  // Whether a source goes through LLVM's passes, and all sources can be read a second time.
  bool compiles() const { return !sources_.empty() && is_complete_ && !stops_early_ && can_read_again_; }
  // Whether the linker runs LLVM's passes over the whole program and can load plugins. False for ThinLTO: its backends
  // inline functions imported from other modules, which policies are not trained on and where they did worse.
  bool optimizes_at_link() const {
    return is_complete_ && !stops_early_ && can_read_again_ && links_with_lto() && !thin_ && lld_;
  }
  // Whether the linker runs LLVM's passes and can be given options of these, as clang has been asked.
  bool generates_code_at_link() const {
    return is_complete_ && !stops_early_ && can_read_again_ && links_with_lto() && generates_code_at_link_;
  }
  // Of the target; empty for the compiler's default.
  const std::string &architecture() const { return architecture_; }
  // Whether all of the code of a source is generated here, for this architecture, which is that of the default target.
  bool compiles_for(std::string_view architecture) const {
    return compiles() && !has_index_ && (architecture_.empty() || architecture_ == architecture);
  }
  // Whether the user sets this option of LLVM's passes, as far as clang has been asked.
  bool sets_pass_option(const std::string &option) const {
    return std::find(pass_options_.begin(), pass_options_.end(), pass_option_name(option)) != pass_options_.end();
  }
  // The last -O option without its dash; `O0` if there is none.
  const std::string &level() const { return level_; }
  // The only output with machine code; empty if there is none, or more than one.
  const std::string &measurable_output() const { return measurable_output_; }
  // A path of the command line, which is relative to the argument of -working-directory.
  std::string path(const std::string &name) const { return in_folder(working_directory_, name); }
  // Whether other files are written beside the output and must match it.
  bool writes_side_files() const { return writes_side_files_; }
  // Whether another argument names an input that can be read only once.
  bool names_one_shot_input() const {
    return std::any_of(arguments_.begin(), arguments_.end(),
                       [this](const std::string &each) { return mlgo::names_one_shot_input(each, working_directory_); });
  }
  // Whether the object will contain the command line.
  bool is_recorded() const { return is_recorded_; }
  // The argument of -MJ, and that of -gen-cdb-fragment-path; or empty.
  const std::string &database() const { return database_; }
  const std::string &database_folder() const { return database_folder_; }
  // The first source, for messages.
  std::string source() const { return sources_.empty() ? "" : sources_[0]; }

 private:
  enum class Step { kAssembly, kObject, kLink };

  // Whether there may be debug information as for Windows.
  bool may_use_codeview() const {
    return std::any_of(arguments_.begin(), arguments_.end(), [](const std::string &each) {
      return starts_with(each, "-gcodeview") || each.find("-windows") != std::string::npos;
    });
  }

  bool links_with_lto() const { return lto_ && last_step_ == Step::kLink && num_inputs_ > 0; }

  static bool is_overridden() { return !edits().empty(); }

  // Expands response files as clang does. One that can be read only once (a pipe) is not read.
  void expand(const std::vector<std::string> &arguments) {
    for (const std::string &argument : arguments) {
      if (!is_complete_)
        return;
      if (argument.size() < 2 || argument[0] != '@') {
        arguments_.push_back(argument);
        continue;
      }
      const std::string path = argument.substr(1);
      struct stat status;
      if (stat(path.c_str(), &status) != 0) {
        arguments_.push_back(argument);  // clang treats it as an input of that name
      } else if (!S_ISREG(status.st_mode) || ++num_files_ > kMaxFiles ||
                 (num_response_bytes_ += std::min(status.st_size, kMaxResponseBytes + 1)) > kMaxResponseBytes ||
                 !inclusions_.enter(status)) {
        is_complete_ = false;
      } else if (const std::optional<std::string> text = decoded(read_file(path))) {
        expand(split_words(*text));
        inclusions_.leave();
      } else {
        is_complete_ = false;
      }
    }
  }

  void read() {
    std::string language;
    std::string output;
    bool bitcode = false, fat = false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const std::string &argument = arguments_[i];
      if (only_inputs_ || argument.empty() || argument[0] != '-' || argument == "-") {
        read_input(argument, language);
        continue;
      }
      if (argument == "--") {
        only_inputs_ = true;
        continue;
      }
      // The value of an option, joined or separate.
      const auto value = [&](std::string_view option) {
        return argument.size() > option.size() ? argument.substr(option.size())
                                               : i + 1 < arguments_.size() ? arguments_[++i] : std::string();
      };
      if (is_one_of(argument, kStopEarly) || starts_with_one_of(argument, kStopEarlyPrefixes)) {
        stops_early_ = true;
      } else if (argument == "-c" || argument == "--compile") {
        last_step_ = std::min(last_step_, Step::kObject);
      } else if (argument == "-S" || argument == "--assemble") {
        last_step_ = Step::kAssembly;
      } else if (argument == "-emit-llvm") {
        bitcode = true;
      } else if (starts_with(argument, "-ObjC")) {
        language = argument == "-ObjC" ? "objective-c" : "objective-c++";
      } else if (starts_with(argument, "-O") || starts_with(argument, "--optimize")) {
        level_ = level_of(argument);
      } else if (argument == "-flto" || starts_with(argument, "-flto=")) {
        lto_ = true;
        thin_ = argument == "-flto=thin";
      } else if (argument == "-fno-lto") {
        lto_ = false;
      } else if (argument == "-ffat-lto-objects" || argument == "-fno-fat-lto-objects") {
        fat = argument[2] == 'f' && argument[3] == 'a';
      } else if (starts_with(argument, "-fuse-ld=") || starts_with(argument, "--ld-path=")) {
        names_linker_ = true;
        lld_ = base_name(argument.substr(argument.find('=') + 1)).find("lld") != std::string_view::npos;
      } else if (argument == "-target" || starts_with(argument, "--target=")) {
        architecture_ = architecture_of(argument == "-target" ? value(argument) : argument.substr(9));
      } else if (starts_with(argument, "-fthinlto-index")) {
        has_index_ = true;
      } else if (is_one_of(argument, kMachines)) {
        names_machine_ = true;
        i += argument == "-arch";
      } else if (starts_with(argument, "--config")) {
        names_configuration_ = true;
        i += argument == "--config";
      } else if (argument == "--output" || (starts_with(argument, "-o") && !starts_with(argument, "-obj"))) {
        output = value(argument[1] == '-' ? argument : "-o");
      } else if (starts_with(argument, "--output=")) {
        output = argument.substr(9);
      } else if (starts_with(argument, "-x") || argument == "--language") {
        language = value(argument[1] == '-' ? argument : "-x");
      } else if (starts_with(argument, "--language=")) {
        language = argument.substr(11);
      } else if (argument == "-Xclang" || starts_with(argument, "-Xclang=")) {
        const std::string cc1 = value(argument == "-Xclang" ? argument : "-Xclang=");
        stops_early_ |= is_one_of(cc1, kStopEarly) || cc1 == "-disable-llvm-passes" || cc1 == "-disable-llvm-optzns";
        hides_level_ |= starts_with(cc1, "-O");
        writes_side_files_ |= starts_with_one_of(cc1, kSideFiles);
      } else if (argument == "-Xpreprocessor" || starts_with(argument, "-Wp,")) {
        hides_level_ |= (argument[1] == 'X' ? "," + value(argument) : argument).find(",-O") != std::string::npos;
      } else if (argument == "-mllvm" || starts_with(argument, "-mllvm=")) {
        const std::string option = value(argument == "-mllvm" ? argument : "-mllvm=");
        writes_side_files_ |= option.find("file") != std::string::npos || option.find("output") != std::string::npos;
      } else if (argument == "-working-directory" || starts_with(argument, "-working-directory=")) {
        working_directory_ = value(argument == "-working-directory" ? argument : "-working-directory=");
      } else if (argument == "-gen-cdb-fragment-path") {
        database_folder_ = value(argument);
      } else if (starts_with(argument, "--driver-mode=")) {
        stops_early_ |= argument != "--driver-mode=gcc" && argument != "--driver-mode=g++";
      } else if (starts_with(argument, "--rsp-quoting=")) {
        is_complete_ &= argument == "--rsp-quoting=posix";
      } else if (is_one_of(argument, kRecords)) {
        is_recorded_ = true;
      } else if (starts_with(argument, "-MJ")) {
        database_ = value("-MJ");
      } else if (starts_with_one_of(argument, kSideFiles)) {
        writes_side_files_ = true;
      } else if (starts_with(argument, "-Wl,") || is_one_of(argument, kForLinker)) {
        has_linker_options_ = true;
        i += argument[1] != 'W';
      } else if (starts_with(argument, "-Xarch_")) {
        hides_level_ = true;
        ++i;
      } else if (is_one_of(argument, kTakesValue)) {
        ++i;
      }
    }
    for (const std::string &source : sources_)
      can_read_again_ &= is_regular_file(path(source));
    if (last_step_ == Step::kAssembly || (last_step_ == Step::kObject && (bitcode || (lto_ && !fat))))
      return;
    const bool links = last_step_ == Step::kLink;
    if (output == "-" || (!links && sources_.size() != 1))
      return;
    measurable_output_ = path(!output.empty() ? output : links ? "a.out" : object_of(sources_[0]));
    // A map, a trace or the like, which belongs to the program.
    writes_side_files_ |= links && has_linker_options_;
    struct stat status;
    if (stat(measurable_output_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      measurable_output_.clear();
  }

  void read_input(const std::string &input, const std::string &language) {
    ++num_inputs_;
    const bool typed = !language.empty() && language != "none";
    const std::string_view name = base_name(input);
    const size_t dot = name.find_last_of('.');
    const std::string extension(dot == std::string_view::npos ? "" : name.substr(dot + 1));
    if (input == "-") {
      can_read_again_ = false;
    } else if (typed ? is_one_of(language, kOffloadLanguages) : is_one_of(extension, kOffloadExtensions)) {
      stops_early_ = true;  // several compilations in one; policies are not trained for these
    } else if (typed ? is_one_of(language, kLanguages) : is_one_of(extension, kExtensions)) {
      sources_.push_back(input);
    }
  }

  static std::string object_of(const std::string &source) {
    const std::string name(base_name(source));
    return name.substr(0, name.find_last_of('.')) + ".o";
  }

  // Options with which nothing is compiled by LLVM's passes.
  static constexpr std::string_view kStopEarly[] = {
      "-E",         "--preprocess",     "-M",          "--dependencies", "-MM",           "--user-dependencies",
      "-###",       "-fsyntax-only",    "--analyze",   "-emit-ast",      "--precompile",  "-fmodule-only",
      "--version",  "--help",           "-help",       "--help-hidden",  "-verify-pch",   "-extract-api",
      "--migrate",  "-rewrite-objc",    "-emit-pch",   "-emit-module",   "-fdriver-only", "-rewrite-legacy-objc",
      "-module-file-info", "-ccc-print-phases", "-ccc-print-bindings"};
  static constexpr std::string_view kStopEarlyPrefixes[] = {
      "-print-", "--print-", "-dumpmachine", "-dumpversion", "--autocomplete=", "-cc1", "-emit-interface-stubs",
      "-fopenmp-targets=", "-gen-reproducer", "--offload-arch=", "--offload=", "--cuda-", "-emit-merged-ifs"};
  static constexpr std::string_view kSideFiles[] = {
      "-gsplit-dwarf", "-save-temps", "--save-temps", "-fsave-optimization-record", "-foptimization-record-file",
      "-ftime-trace",  "-fstack-usage", "-stack-usage-file", "-opt-record-file", "-save-stats", "--save-stats", "-stats-file"};
  static constexpr std::string_view kMachines[] = {"-m16", "-m32", "-m64", "-mx32", "-EB", "-EL", "-mbig-endian",
                                                   "-mlittle-endian", "-arch"};
  static constexpr std::string_view kForLinker[] = {"-Xlinker", "--for-linker"};
  static constexpr std::string_view kRecords[] = {"-grecord-command-line", "-grecord-gcc-switches",
                                                  "-frecord-command-line", "-frecord-gcc-switches"};
  static constexpr std::string_view kTakesValue[] = {
      "--analyzer-output", "--assert", "--define-macro", "--include-directory",
      "--include-directory-after", "--library-directory", "--param", "--prefix", "--serialize-diagnostics",
      "--sysroot", "--undefine-macro", "-A", "-B", "-D", "-F", "-G", "-I", "-L", "-MF", "-MQ",
      "-MT", "-T", "-Tbss", "-Tdata", "-Ttext", "-U", "-Xanalyzer", "-Xassembler", "-Xclangas",
      "-Xcuda-fatbinary", "-Xcuda-ptxas", "-Xoffload-linker", "-Xopenmp-target",
      "-arcmt-migrate-report-output", "-b", "-bundle_loader", "-ccc-arcmt-migrate", "-ccc-gcc-name",
      "-ccc-install-dir", "-ccc-objcmt-migrate", "-cxx-isystem", "-darwin-target-variant",
      "-darwin-target-variant-triple", "-dependency-dot", "-dependency-file", "-dsym-dir", "-dumpdir", "-e",
      "-fexperimental-openacc-macro-override", "-fmodules-user-build-path", "-framework",
      "-hlsl-entry", "-iapinotes-modules", "-idirafter", "-iframework", "-iframeworkwithsysroot", "-imacros",
      "-include", "-include-pch", "-index-store-path", "-install_name", "-iprefix", "-iquote", "-isysroot",
      "-isystem", "-isystem-after", "-ivfsoverlay", "-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-l",
      "-meabi", "-mmlir", "-module-dependency-dir", "-mthread-model", "-resource-dir", "-rpath",
      "-serialize-diagnostics", "-stdlib++-isystem", "-u", "-vfsoverlay", "-weak_framework", "-z"};
  static constexpr std::string_view kLanguages[] = {
      "c", "c++", "objective-c", "objective-c++", "cpp-output", "c++-cpp-output", "objective-c-cpp-output",
      "objective-c++-cpp-output", "objc-cpp-output", "objc++-cpp-output", "c++-module", "c++-module-cpp-output", "ir"};
  static constexpr std::string_view kExtensions[] = {
      "c",   "i",   "cc", "cp",  "cpp", "cxx", "c++",  "C",    "CC",   "CPP", "CXX", "C++", "ii",
      "m",   "mi",  "mm", "M",   "mii", "ll",  "bc",   "cppm", "ccm",  "cxxm", "c++m", "iim", "pcm"};
  static constexpr std::string_view kOffloadLanguages[] = {"cuda", "cuda-cpp-output", "hip", "hip-cpp-output", "cl",
                                                           "clcpp"};
  static constexpr std::string_view kOffloadExtensions[] = {"cu", "cui", "hip", "hipi", "cl", "clcpp"};

  std::vector<std::string> arguments_;
  int num_files_ = 0;  // response files that were read
  off_t num_response_bytes_ = 0;
  Inclusions inclusions_;
  bool is_complete_ = true;
  bool only_inputs_ = false;
  bool stops_early_ = false;
  bool can_read_again_ = true;
  bool lto_ = false, thin_ = false, lld_ = false;
  bool names_linker_ = false, names_configuration_ = false, names_machine_ = false;
  bool generates_code_at_link_ = false;
  bool hides_level_ = false;  // An option that is another compiler's may set it.
  bool writes_side_files_ = false, has_linker_options_ = false, is_recorded_ = false;
  size_t num_inputs_ = 0;
  Step last_step_ = Step::kLink;
  bool has_index_ = false;  // of a link with ThinLTO, of which this is a backend
  std::string level_ = "O0", architecture_;
  std::vector<std::string> sources_, pass_options_;
  std::string working_directory_, database_, database_folder_;
  std::string measurable_output_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_
