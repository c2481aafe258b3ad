// The policies of a deployment, and their files.

#ifndef COMPILER_OPT_NATIVE_DRIVER_POLICIES_H_
#define COMPILER_OPT_NATIVE_DRIVER_POLICIES_H_

#include "config.h"
#include "files.h"
#include "identity.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace mlgo {

// Checks a file of a policy without loading it: a damaged plugin may crash the compiler, and that of another policy
// would load. Returns an error message, or an empty string on success.
inline std::string file_problem(const std::string &path, const config::File &expected) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || access(path.c_str(), R_OK) != 0)
    return path + ": " + std::strerror(errno);
  if (!S_ISREG(status.st_mode) || status.st_size != expected.bytes)
    return path + ": damaged or replaced (expected a file of " + std::to_string(expected.bytes) + " bytes, found " +
           (S_ISREG(status.st_mode) ? std::to_string(status.st_size) : "none") + ")";
  // A deployment dates a file by its content (`DriverFile.date_s` of deploy/driver.py), which thus need not be read. One
  // that was written since has another date.
  if (status.st_mtim.tv_sec == 1'000'000'000 + static_cast<time_t>(std::strtoull(expected.fingerprint, nullptr, 16) % (1 << 28)))
    return "";
  const std::string found = hexadecimal(Fingerprint(path).hash);
  if (found != expected.fingerprint)
    return path + ": damaged or replaced (expected the content " + expected.fingerprint + ", found " + found + ")";
  return "";
}

// A policy, with its files for one compiler.
class Policy {
 public:
  Policy(const config::Policy &settings, const config::Plugin &files, const std::string &prefix)
      : settings_(&settings), files_(&files), library_(prefix + "/lib/" + files.library.name) {
    if (*files.decisions.name)
      decisions_ = prefix + "/lib/" + files.decisions.name;
  }

  bool decides_at(std::string_view level) const {
    const auto end = settings_->levels + settings_->num_levels;
    return std::find(settings_->levels, end, level) != end;
  }
  // The levels as its plugin takes them, and the environment variable for that.
  std::string levels() const {
    std::string text;
    for (size_t index = 0; index < settings_->num_levels; ++index)
      text += (index == 0 ? "" : ",") + std::string(settings_->levels[index]);
    return text;
  }
  const char *levels_variable() const {
    return std::string_view(settings_->problem) == "inlining" ? "MLGO_INLINER_LEVELS" : "MLGO_REGALLOC_LEVELS";
  }
  // Whether it sets options of LLVM's passes by function, the deployed ones among them: only where clang generates code
  // for its default target, as a linker may do so in several threads, and always by its own file.
  bool sets_options() const { return std::string_view(settings_->problem) == "pass_options"; }
  // What a compilation does if the plugin is missing.
  const char *consequence_without() const {
    return sets_options() ? "; all functions get the same options" : "; compiling without this policy";
  }
  bool has_network() const { return settings_->has_network; }
  bool is_for_size() const { return settings_->is_for_size; }

  // The path of the plugin.
  const std::string &library() const { return library_; }
  std::string library_problem() const { return file_problem(library_, files_->library); }

  // The path of the decision file, or empty.
  const std::string &decisions() const { return decisions_; }
  std::string decisions_problem() const { return decisions_.empty() ? "" : file_problem(decisions_, files_->decisions); }
  void drop_decisions() { decisions_.clear(); }

  // What it decides and where, as a line of text.
  std::string summary() const { return std::string("policy: ") + settings_->problem + " at" + dashed_levels() + "\n"; }

  // What it contributes to objects, as lines of text.
  std::string info() const {
    std::string text = std::string("policy: ") + settings_->checksum + "\nproblem: " + settings_->problem +
                       "\nlevels:" + dashed_levels();
    text += "\nplugin: " + library_ + " (" + identity_by_content(library_) + ")\n";
    if (!decisions_.empty())
      text += "decisions: " + decisions_ + " (" + identity_by_content(decisions_) + "): " + files_->about_decisions + "\n";
    return text;
  }

 private:
  std::string dashed_levels() const {
    std::string text;
    for (size_t index = 0; index < settings_->num_levels; ++index)
      text += std::string(" -") + settings_->levels[index];
    return text;
  }

  const config::Policy *settings_;
  const config::Plugin *files_;
  std::string library_, decisions_;
};

// All policies that the compiler of this index has plugins for, with their files.
inline std::vector<Policy> deployed_policies(size_t compiler, const std::string &prefix) {
  std::vector<Policy> policies;
  for (size_t index = 0; index < config::kNumPolicies; ++index) {
    const config::Plugin &plugin = config::kPolicies[index].plugins[compiler];
    if (*plugin.library.name)
      policies.emplace_back(config::kPolicies[index], plugin, prefix);
  }
  return policies;
}

// Whether one of these policies sets options of LLVM's passes by function. Its plugin has the deployed ones, too, and takes
// those of a command line for the user's.
inline bool set_options_by_function(const std::vector<Policy> &policies) {
  return std::any_of(policies.begin(), policies.end(), [](const Policy &policy) { return policy.sets_options(); });
}

// Whether one of these policies decides about anything but options.
inline bool any_decides(const std::vector<Policy> &policies) {
  return std::any_of(policies.begin(), policies.end(), [](const Policy &policy) { return !policy.sets_options(); });
}

// Sets the environment variables of the plugins of these policies, whatever the user's say.
inline void configure_plugins(const std::vector<Policy> &policies, const char *only_version, bool strict) {
  for (const char *variable : {"MLGO_INLINER_POLICY", "MLGO_INLINER_LOG", "MLGO_INLINER_LOG_DEFAULT", "MLGO_INLINER_SEED",
                               "MLGO_INLINER_TEMPERATURE", "MLGO_INLINER_MODE", "MLGO_INLINER_DECISIONS",
                               "MLGO_INLINER_DIFFERENCES", "MLGO_INLINER_FUNCTIONS", "MLGO_INLINER_LEVELS",
                               "MLGO_INLINER_STRICT",
                               "MLGO_REGALLOC_POLICY", "MLGO_REGALLOC_LOG", "MLGO_REGALLOC_CHANNEL", "MLGO_REGALLOC_MODE",
                               "MLGO_REGALLOC_LEVELS", "MLGO_REGALLOC_STRICT", "MLGO_OPTIONS_MENU",
                               "MLGO_OPTIONS_CHOICES", "MLGO_OPTIONS_PLUGIN", "MLGO_OPTIONS_TRIAL", "MLGO_OPTIONS_DEFAULT",
                               "MLGO_OPTIONS_LOG", "MLGO_OPTIONS_COSTS", "MLGO_OPTIONS_STRICT"})
    unsetenv(variable);
  for (const Policy &policy : policies) {
    if (policy.sets_options())
      continue;
    // The plugin knows the level of the pipeline that it is part of, whatever options that came from.
    setenv(policy.levels_variable(), policy.levels().c_str(), 1);
    if (!policy.has_network())  // Only the inliner's plugin replays decisions.
      setenv("MLGO_INLINER_MODE", "default", 1);
    if (!policy.decisions().empty())
      setenv("MLGO_INLINER_DECISIONS", policy.decisions().c_str(), 1);
  }
  setenv("MLGO_LLVM_VERSION", only_version, 1);
  for (const char *variable : {"MLGO_INLINER_STRICT", "MLGO_REGALLOC_STRICT", "MLGO_OPTIONS_STRICT"})
    if (strict)
      setenv(variable, "1", 1);
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_POLICIES_H_
