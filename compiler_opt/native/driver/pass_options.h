// The options of LLVM's passes that a deployment has for each optimisation level.
//
// They are given to the compiler before all others: of an option that is given twice, LLVM takes the last one, which is
// the user's.

#ifndef COMPILER_OPT_NATIVE_DRIVER_PASS_OPTIONS_H_
#define COMPILER_OPT_NATIVE_DRIVER_PASS_OPTIONS_H_

#include "config.h"

#include <string>
#include <string_view>
#include <vector>

namespace mlgo {

class PassOptions {
 public:
  explicit PassOptions(const config::Compiler &compiler) : compiler_(&compiler) {}

  bool empty() const { return !compiler_->sets->level; }

  // Whether they differ between targets.
  bool depend_on_architecture() const {
    for (const config::OptionSet *set = compiler_->sets; set->level; ++set)
      if (*set->architecture)
        return true;
    return false;
  }

  // Those for a level on an architecture; if that is empty, on the one of the compiler's default target.
  std::vector<std::string> at(std::string_view level, std::string_view architecture) const {
    const std::string_view wanted = architecture.empty() ? compiler_->architecture : architecture;
    const config::OptionSet *found = nullptr;
    for (const config::OptionSet *set = compiler_->sets; set->level; ++set)
      if (set->level == level && (set->architecture == wanted || (!found && !*set->architecture)))
        found = set;
    std::vector<std::string> options;
    for (const char *const *option = found ? found->options : nullptr; option && *option; ++option)
      options.push_back(*option);
    return options;
  }

  // How many there are, as lines of text.
  std::string summary() const {
    std::string text;
    for (const config::OptionSet *set = compiler_->sets; set->level; ++set) {
      size_t number = 0;
      while (set->options[number])
        ++number;
      text += "options: " + std::to_string(number) + " of LLVM's passes at -" + set->level +
              (*set->architecture ? std::string(" for ") + set->architecture : "") + "\n";
    }
    return text;
  }

  // All of them, as lines of text.
  std::string info() const {
    std::string text;
    for (const config::OptionSet *set = compiler_->sets; set->level; ++set) {
      text += std::string("options: -") + set->level + (*set->architecture ? std::string(" ") + set->architecture : "") + ":";
      for (const char *const *option = set->options; *option; ++option)
        text += std::string(" ") + *option;
      text += "\n";
    }
    return text;
  }

 private:
  const config::Compiler *compiler_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_PASS_OPTIONS_H_
