// The settings of a deployment, which environment variables override.

#ifndef COMPILER_OPT_NATIVE_DRIVER_SETTINGS_H_
#define COMPILER_OPT_NATIVE_DRIVER_SETTINGS_H_

#include "config.h"
#include "environment.h"

#include <cstdint>
#include <optional>
#include <string>

namespace mlgo {

struct Settings {
  bool strict = boolean_variable("MLGO_STRICT").value_or(config::kStrict);
  std::optional<uint64_t> above_kb = number_variable("MLGO_NEVER_WORSE_ABOVE_KB");
  bool never_worse = boolean_variable("MLGO_NEVER_WORSE").value_or(config::kNeverWorse || above_kb);
  uint64_t never_worse_above_kb = above_kb.value_or(config::kNeverWorseAboveKb);
  bool disabled = boolean_variable("MLGO_DISABLE").value_or(false);

  // As lines of text.
  std::string info() const {
    const auto yes_or_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
    const bool is_bounded = never_worse && never_worse_above_kb != 0;
    return "never worse: " +
           (is_bounded ? "above " + std::to_string(never_worse_above_kb) + " kB" : yes_or_no(never_worse)) +
           "\nstrict: " + yes_or_no(strict) + "\ndisabled: " + yes_or_no(disabled) + "\n";
  }
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_SETTINGS_H_
