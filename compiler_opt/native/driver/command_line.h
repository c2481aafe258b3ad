// Parses a clang command line as far as mlgo-clang needs it.

#ifndef COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_
#define COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_

#include "files.h"
#include "inputs.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace mlgo {

// Splits a text into words, with the quotes and backslashes of a shell.
inline std::vector<std::string> split_words(const std::string &text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (in_word)
        words.push_back(word);
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (in_word)
    words.push_back(word);
  return words;
}

// The number of response or configuration files that are read for one command line.
inline constexpr int kMaxFiles = 100;
// The bytes of all response files of a command line, beyond which clang alone reads them.
inline constexpr off_t kMaxResponseBytes = 16 << 20;

// Files that are being read, each because the one before names it. One that names itself would never end; clang reports
// that.
class Inclusions {
 public:
  // Whether the file, which exists, is not being read yet; then it is until `leave`.
  bool enter(const struct stat &file) {
    const std::pair id(file.st_dev, file.st_ino);
    if (std::find(files_.begin(), files_.end(), id) != files_.end())
      return false;
    files_.push_back(id);
    return true;
  }
  void leave() { files_.pop_back(); }

 private:
  std::vector<std::pair<dev_t, ino_t>> files_;
};

// What clang's own configuration adds to a command line.
struct Configuration {
  std::vector<std::string> options;  // from configuration files
  bool links_by_lld = false;

  // Parses what clang prints with -###: its configuration files, and its commands, the last of which is the linker's.
  static Configuration parse(const std::string &printed) {
    static constexpr std::string_view kFile = "Configuration file: ";
    Configuration found;
    std::string last;
    for (size_t start = 0; start < printed.size();) {
      const size_t end = std::min(printed.find('\n', start), printed.size());
      const std::string line = printed.substr(start, end - start);
      if (starts_with(line, kFile))
        found.read_options(line.substr(kFile.size()));
      if (starts_with(line, " \""))
        last = line;
      start = end + 1;
    }
    const std::vector<std::string> linker = split_words(last);
    found.links_by_lld = !linker.empty() && base_name(linker[0]).find("lld") != std::string_view::npos;
    return found;
  }

 private:
  void read_options(const std::string &path) {
    struct stat status;
    if (++num_files_ > kMaxFiles || stat(path.c_str(), &status) != 0 || !inclusions_.enter(status))
      return;
    const std::string text = read_file(path);
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      for (const std::string &word : split_words(text.substr(start, end - start))) {
        if (word[0] == '#')
          break;
        const std::string name = word.substr(std::min<size_t>(word.size(), 1));
        if (word[0] == '@')  // A relative name is relative to the file that includes it.
          read_options(starts_with(name, "/") ? name : path.substr(0, path.rfind('/') + 1) + name);
        else if (word[0] != '$' && word != "\\")  // Options after $ are the linker's; a backslash continues the line.
          options.push_back(word);
      }
      start = end + 1;
    }
    inclusions_.leave();
  }

  int num_files_ = 0;
  Inclusions inclusions_;
};

// A parsed command line.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::string> &arguments) {
    expand(arguments);
    read();
  }

  // With the configuration that clang has printed for the command line.
  CommandLine(const std::vector<std::string> &arguments, const Configuration &configuration) {
    expand(configuration.options);
    expand(arguments);
    read();
    lld_ = configuration.links_by_lld;
  }

  // Whether clang must be asked for its configuration: for a file that the command line names, or for the linker.
  bool depends_on_configuration() const {
    return is_complete_ && !stops_early_ &&
           (names_configuration_ || (lto_ && !thin_ && !names_linker_ && last_step_ == Step::kLink && num_inputs_ > 0));
  }

  // Whether a source goes through LLVM's passes, and all sources can be read a second time.
  bool compiles() const { return num_sources_ > 0 && is_complete_ && !stops_early_ && can_read_again_; }
  // Whether the linker runs LLVM's passes over the whole program and can load plugins. False for ThinLTO: its backends
  // inline functions imported from other modules, which policies are not trained on and where they did worse.
  bool optimizes_at_link() const {
    return is_complete_ && !stops_early_ && can_read_again_ && last_step_ == Step::kLink && num_inputs_ > 0 && lto_ &&
           !thin_ && lld_;
  }
  // The last -O option without its dash; `O0` if there is none.
  const std::string &level() const { return level_; }
  // The only output with machine code; empty if there is none, or more than one.
  const std::string &measurable_output() const { return measurable_output_; }
  // Whether other files are written beside the output and must match it.
  bool writes_side_files() const { return writes_side_files_; }
  // Whether another argument names an input that can be read only once.
  bool names_one_shot_input() const {
    return std::any_of(arguments_.begin(), arguments_.end(), mlgo::names_one_shot_input);
  }
  // Whether the object will contain the command line.
  bool is_recorded() const { return is_recorded_; }
  // The argument of -MJ, or empty.
  const std::string &database() const { return database_; }
  // The first source, for messages.
  const std::string &source() const { return source_; }

 private:
  enum class Step { kAssembly, kObject, kLink };

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
      } else {
        expand(split_words(read_file(path)));
        inclusions_.leave();
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
        read_level(argument);
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
      } else if (argument == "-Xclang") {
        const std::string cc1 = value(argument);
        stops_early_ |= is_one_of(cc1, kStopEarly) || cc1 == "-disable-llvm-passes" || cc1 == "-disable-llvm-optzns";
        writes_side_files_ |= starts_with_one_of(cc1, kSideFiles);
      } else if (is_one_of(argument, kRecords)) {
        is_recorded_ = true;
      } else if (starts_with(argument, "-MJ")) {
        database_ = value("-MJ");
      } else if (starts_with_one_of(argument, kSideFiles)) {
        writes_side_files_ = true;
      } else if (starts_with(argument, "-Xarch_") || is_one_of(argument, kTakesValue)) {
        ++i;
      }
    }
    if (last_step_ == Step::kAssembly || (last_step_ == Step::kObject && (bitcode || (lto_ && !fat))))
      return;
    measurable_output_ = last_step_ == Step::kLink ? (output.empty() ? "a.out" : output)
                         : num_sources_ != 1       ? std::string()
                         : output.empty()          ? object_of(source_)
                                                   : output;
    struct stat status;
    if (stat(measurable_output_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      measurable_output_.clear();
    if (output == "-")
      measurable_output_.clear();
  }

  // Parses `-Oz` or `--optimize=z`, and replaces aliases such as `-Ofast` or `-O4` by their level.
  void read_level(const std::string &option) {
    const std::string value = option.substr(option[1] == '-' ? std::min(option.size(), size_t(11)) : 2);
    if (value.empty() || value == "g")
      level_ = "O1";
    else if (value == "fast" || (value.size() == 1 && value[0] >= '4' && value[0] <= '9'))
      level_ = "O3";
    else
      level_ = "O" + value;
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
      ++num_sources_;
      if (num_sources_ == 1)
        source_ = input;
      can_read_again_ &= is_regular_file(input);
    }
  }

  static std::string object_of(const std::string &source) {
    const std::string name(base_name(source));
    return name.substr(0, name.find_last_of('.')) + ".o";
  }

  template <size_t N> static bool is_one_of(std::string_view text, const std::string_view (&table)[N]) {
    return std::find(std::begin(table), std::end(table), text) != std::end(table);
  }
  template <size_t N> static bool starts_with_one_of(std::string_view text, const std::string_view (&table)[N]) {
    return std::any_of(std::begin(table), std::end(table),
                       [text](std::string_view start) { return starts_with(text, start); });
  }

  // Options with which nothing is compiled by LLVM's passes.
  static constexpr std::string_view kStopEarly[] = {
      "-E",         "--preprocess",     "-M",          "--dependencies", "-MM",           "--user-dependencies",
      "-###",       "-fsyntax-only",    "--analyze",   "-emit-ast",      "--precompile",  "-fmodule-only",
      "--version",  "--help",           "-help",       "--help-hidden",  "-verify-pch",   "-extract-api",
      "--migrate",  "-rewrite-objc",    "-emit-pch",   "-emit-module",   "-fdriver-only", "-rewrite-legacy-objc",
      "-module-file-info"};
  static constexpr std::string_view kStopEarlyPrefixes[] = {
      "-print-", "--print-", "-dumpmachine", "-dumpversion", "--autocomplete=", "-cc1", "-emit-interface-stubs",
      "-fopenmp-targets=", "--offload-arch=", "--offload=", "--cuda-", "-emit-merged-ifs"};
  static constexpr std::string_view kSideFiles[] = {
      "-gsplit-dwarf", "-save-temps", "--save-temps", "-fsave-optimization-record", "-foptimization-record-file",
      "-ftime-trace",  "-fstack-usage", "-stack-usage-file", "-opt-record-file"};
  static constexpr std::string_view kRecords[] = {"-grecord-command-line", "-grecord-gcc-switches",
                                                  "-frecord-command-line", "-frecord-gcc-switches"};
  static constexpr std::string_view kTakesValue[] = {
      "--analyzer-output", "--assert", "--define-macro", "--for-linker", "--include-directory",
      "--include-directory-after", "--library-directory", "--param", "--prefix", "--serialize-diagnostics",
      "--sysroot", "--undefine-macro", "--working-directory", "-A", "-B", "-D", "-F", "-G", "-I", "-L", "-MF", "-MQ",
      "-MT", "-T", "-Tbss", "-Tdata", "-Ttext", "-U", "-Xanalyzer", "-Xassembler", "-Xclangas",
      "-Xcuda-fatbinary", "-Xcuda-ptxas", "-Xlinker", "-Xoffload-linker", "-Xopenmp-target", "-Xpreprocessor",
      "-arch", "-arcmt-migrate-report-output", "-b", "-bundle_loader", "-ccc-arcmt-migrate", "-ccc-gcc-name",
      "-ccc-install-dir", "-ccc-objcmt-migrate", "-cxx-isystem", "-darwin-target-variant",
      "-darwin-target-variant-triple", "-dependency-dot", "-dependency-file", "-dsym-dir", "-dumpdir", "-e",
      "-fexperimental-openacc-macro-override", "-fmodules-user-build-path", "-framework", "-gen-cdb-fragment-path",
      "-hlsl-entry", "-iapinotes-modules", "-idirafter", "-iframework", "-iframeworkwithsysroot", "-imacros",
      "-include", "-include-pch", "-index-store-path", "-install_name", "-iprefix", "-iquote", "-isysroot",
      "-isystem", "-isystem-after", "-ivfsoverlay", "-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-l",
      "-meabi", "-mllvm", "-mmlir", "-module-dependency-dir", "-mthread-model", "-resource-dir", "-rpath",
      "-serialize-diagnostics", "-stdlib++-isystem", "-target", "-u", "-vfsoverlay", "-weak_framework",
      "-working-directory", "-z"};
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
  bool names_linker_ = false, names_configuration_ = false;
  bool writes_side_files_ = false, is_recorded_ = false;
  size_t num_inputs_ = 0, num_sources_ = 0;
  Step last_step_ = Step::kLink;
  std::string level_ = "O0";
  std::string source_, database_;
  std::string measurable_output_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_COMMAND_LINE_H_
