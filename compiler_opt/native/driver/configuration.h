// What clang itself makes of a command line: its configuration files, and the commands that it would run.

#ifndef COMPILER_OPT_NATIVE_DRIVER_CONFIGURATION_H_
#define COMPILER_OPT_NATIVE_DRIVER_CONFIGURATION_H_

#include "files.h"
#include "words.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <regex.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace mlgo {

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

template <size_t N> bool is_one_of(std::string_view text, const std::string_view (&table)[N]) {
  return std::find(std::begin(table), std::end(table), text) != std::end(table);
}
template <size_t N> bool starts_with_one_of(std::string_view text, const std::string_view (&table)[N]) {
  return std::any_of(std::begin(table), std::end(table),
                     [text](std::string_view start) { return starts_with(text, start); });
}

// The level of `-Oz` or `--optimize=z`, without a dash; aliases such as `-Ofast` or `-O4` are replaced by their level.
inline std::string level_of(const std::string &option) {
  const std::string value = option.substr(option[1] == '-' ? std::min(option.size(), size_t(11)) : 2);
  if (value.empty() || value == "g")
    return "O1";
  if (value == "fast" || (value.size() == 1 && value[0] >= '4' && value[0] <= '9'))
    return "O3";
  return "O" + value;
}

// The architecture of a target triple: its first part, but `arm` for all of 32-bit Arm, such as `thumbv7em`.
inline std::string architecture_of(const std::string &triple) {
  const std::string first = triple.substr(0, triple.find('-'));
  if (starts_with(first, "arm64"))
    return "aarch64";
  return starts_with(first, "arm") || starts_with(first, "thumb") ? "arm" : first;
}

// The name of an option of LLVM's passes such as `-enable-load-pre=false`.
inline std::string pass_option_name(const std::string &option) {
  const size_t start = std::min(option.find_first_not_of('-'), option.size());
  return option.substr(start, option.find('=') - start);
}

// By which a linker passes an option on to LLVM.
inline constexpr std::string_view kPluginOption = "-plugin-opt=";

// The name of the option of LLVM's passes that a word is in a command of the compiler or the linker; or empty.
inline std::string pass_option_name(const std::string &previous, const std::string &word) {
  if (previous == "-mllvm" || previous == "--mllvm" || previous == "-plugin-opt" || previous == "--plugin-opt")
    return pass_option_name(word);
  for (const std::string_view joined : {kPluginOption, std::string_view("-mllvm=")})
    if (starts_with(word, joined) || starts_with(word, "-" + std::string(joined)))
      return pass_option_name(word.substr(word.find('=') + 1));
  return "";
}

// The edits of command lines that clang makes for CCC_OVERRIDE_OPTIONS, or empty.
inline std::string edits() {
  const char *value = std::getenv("CCC_OVERRIDE_OPTIONS");
  return value ? value : "";
}

// Whether those edits concern more than the user's options: they add one that records the command line, or remove one of
// ours or substitute something in it. clang compiles plainly then.
inline bool edits_concern(std::vector<std::string> ours) {
  ours.insert(ours.end(), {"--start-no-unused-arguments", "--end-no-unused-arguments"});
  const std::string text = edits();
  for (const char *recorder : {"record", "-MJ", "-gen-cdb"})
    if (text.find(recorder) != std::string::npos)
      return true;
  for (const std::string &edit : split_words(text)) {
    const std::string bare = edit.substr(edit[0] == '#');
    if ((starts_with(bare, "x") || starts_with(bare, "X")) && std::find(ours.begin(), ours.end(), bare.substr(1)) != ours.end())
      return true;
    const size_t end = bare.rfind('/', bare.size() - 2);
    regex_t pattern;
    if (!starts_with(bare, "s/") || end == std::string::npos || end < 2)
      continue;
    if (regcomp(&pattern, bare.substr(2, end - 2).c_str(), REG_EXTENDED | REG_NOSUB) != 0)
      return true;
    const bool concerns = std::any_of(ours.begin(), ours.end(), [&](const std::string &option) {
      return regexec(&pattern, option.c_str(), 0, nullptr, 0) == 0;
    });
    regfree(&pattern);
    if (concerns)
      return true;
  }
  return false;
}

// What clang itself makes of a command line, as it prints that with -###: it knows its configuration files, its default
// linker, and what CCC_OVERRIDE_OPTIONS, -Xclang and -Xarch_ change.
struct Configuration {
  std::vector<std::string> options;  // from configuration files
  bool links_by_lld = false;
  bool links_by_plugin = false;  // with link-time optimisation by LLVM, whose passes the linker can be given options for
  bool has_commands = false;
  bool records_itself = false;  // in debug information for Windows, which cannot be given the user's command line
  bool compiles = false;
  std::string level;  // of all compilations; `O` alone if they differ
  std::string architecture;  // of the target
  std::vector<std::string> pass_options;  // names of the options of LLVM's passes that are set

  static Configuration parse(const std::string &printed) {
    static constexpr std::string_view kFile = "Configuration file: ", kTarget = "Target: ";
    Configuration found;
    std::vector<std::string> last;
    for (size_t start = 0; start < printed.size();) {
      const size_t end = std::min(printed.find('\n', start), printed.size());
      const std::string line = printed.substr(start, end - start);
      if (starts_with(line, kFile))
        found.read_options(line.substr(kFile.size()));
      if (starts_with(line, kTarget))
        found.architecture = architecture_of(line.substr(kTarget.size()));
      if (starts_with(line, " \"")) {
        last = split_words(line, true);
        found.read_command(last);
      }
      start = end + 1;
    }
    found.links_by_plugin = std::any_of(last.begin(), last.end(), [](const std::string &word) {
      return starts_with(word, kPluginOption);
    });
    found.links_by_lld = !last.empty() && base_name(last[0]).find("lld") != std::string_view::npos;
    return found;
  }

 private:
  void read_options(const std::string &path) {
    struct stat status;
    if (++num_files_ > kMaxFiles || stat(path.c_str(), &status) != 0 || !inclusions_.enter(status))
      return;
    for (const std::string &line : configuration_lines(decoded(read_file(path)).value_or(""))) {
      for (const std::string &word : split_words(line)) {
        const std::string name = word.substr(1);
        if (word[0] == '@')  // A relative name is relative to the file that includes it.
          read_options(starts_with(name, "/") ? name : path.substr(0, path.rfind('/') + 1) + name);
        else if (word[0] != '$')  // Options after $ are the linker's.
          options.push_back(word);
      }
    }
    inclusions_.leave();
  }

  void read_command(const std::vector<std::string> &words) {
    has_commands = true;
    for (size_t i = 1; i < words.size(); ++i)
      if (const std::string name = pass_option_name(words[i - 1], words[i]); !name.empty())
        pass_options.push_back(name);
    static constexpr std::string_view kEmits[] = {"-emit-obj", "-S", "-emit-llvm", "-emit-llvm-bc"};
    if (words.size() < 2 || words[1] != "-cc1" ||
        std::none_of(words.begin(), words.end(), [](const auto &word) { return is_one_of(word, kEmits); }))
      return;
    const auto has = [&words](const char *word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    records_itself |= has("-gcodeview") && !has("-gno-codeview-command-line");
    std::string found = "O0";
    for (size_t i = 2; i < words.size(); ++i)
      if (starts_with(words[i], "-O") && !starts_with(words[i], "-ObjC"))
        found = level_of(words[i]);
    level = !compiles || level == found ? found : "O";
    compiles = true;
  }

  int num_files_ = 0;
  Inclusions inclusions_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_CONFIGURATION_H_
