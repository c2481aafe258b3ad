// The name that mlgo-clang is called by. As for clang, it may have a target, a driver mode and a version:
// aarch64-linux-gnu-clang++-22.

#ifndef COMPILER_OPT_NATIVE_DRIVER_NAMES_H_
#define COMPILER_OPT_NATIVE_DRIVER_NAMES_H_

#include "children.h"
#include "files.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>

namespace mlgo {

class ProgramName {
 public:
  explicit ProgramName(const std::string &path) : called_(base_name(path)), name_(called_) {
    static constexpr std::string_view kOurs = "mlgo-clang";
    if (const size_t ours = name_.find(kOurs); ours != std::string::npos) {
      is_ours_ = ours == 0;
      name_.erase(ours, kOurs.find('c'));
    }
    const std::string whole = name_, program = name_.substr(0, name_.rfind('-'));
    const std::string suffix = name_.substr(std::min(program.size() + 1, name_.size()));
    version_ = suffix.find_first_not_of("0123456789") == std::string::npos ? suffix : "";
    names_clang_ = ends_with(program, "clang") || ends_with(program, "clang++");
    for (const std::string &name : {whole, whole.substr(0, whole.find_last_not_of("0123456789.") + 1), program}) {
      const auto *mode = std::find_if(std::begin(kModes), std::end(kModes),
                                      [&name](const Mode &each) { return ends_with(name, each.end); });
      if (mode == std::end(kModes))
        continue;
      mode_ = mode->mode;
      const size_t dash = name.rfind('-', name.size() - mode->end.size());
      target_ = dash == std::string::npos ? "" : name.substr(0, dash);
      break;
    }
  }

  // As it was called, for messages.
  const std::string &called() const { return called_; }
  // The digits after the name, or empty.
  const std::string &version() const { return version_; }
  // Whether it has a target.
  bool names_target() const { return !target_.empty(); }
  // Whether these are a version of clang, and not the year of a link such as cc-2024.
  bool names_clang() const { return names_clang_; }
  // The argument of --driver-mode that the name stands for.
  std::string_view mode() const { return mode_; }

  // The command by which `clang` is called as we are, with `--driver-mode=g++` for C++. clang itself finds target and
  // mode in the name, which it also begins its messages with; but a script does not see what it was called by.
  Command command(const std::string &clang, bool is_cpp) const {
    const std::string folder = clang.substr(0, clang.rfind('/') + 1);
    std::string program = clang, own(base_name(clang));
    const size_t position = own.find("clang");
    if (is_ours_ && position != std::string::npos) {
      const bool has_plus = own.compare(position + 5, 2, "++") == 0;
      if (is_cpp && !has_plus)
        own.insert(position + 5, "++");
      else if (!is_cpp && has_plus)
        own.erase(position + 5, 2);
      if (access((folder + own).c_str(), X_OK) == 0)
        program = folder + own;
    }
    const bool is_seen = !is_script(program);
    Command command = {program, {is_ours_ || !is_seen ? program : folder + name_}};
    const std::string_view wanted = is_cpp ? "g++" : mode_;
    if (wanted != ProgramName(command.arguments[0]).mode_)
      command.arguments.push_back("--driver-mode=" + std::string(wanted));
    if (!is_seen && !target_.empty())
      command.arguments.push_back("--target=" + target_);
    return command;
  }

 private:
  static bool is_script(const std::string &path) { return starts_with(read_file(path, 2), "#!"); }

  struct Mode {
    std::string_view end, mode;
  };
  static constexpr Mode kModes[] = {{"clang-cpp", "cpp"}, {"clang-cl", "cl"},   {"clang-dxc", "dxc"}, {"clang-g++", "g++"},
                                    {"clang-c++", "g++"}, {"clang++", "g++"},   {"clang", "gcc"},     {"flang", "flang"},
                                    {"clang-gcc", "gcc"}, {"clang-cc", "gcc"},  {"cpp", "cpp"},       {"++", "g++"},
                                    {"cc", "gcc"},        {"cl", "cl"}};

  const std::string called_;
  std::string name_;  // without mlgo-
  std::string version_, target_;
  std::string_view mode_ = "gcc";
  bool is_ours_ = false, names_clang_ = false;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_NAMES_H_
