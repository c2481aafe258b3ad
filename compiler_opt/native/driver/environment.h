// The location of mlgo-clang, its environment variables, and its messages.

#ifndef COMPILER_OPT_NATIVE_DRIVER_ENVIRONMENT_H_
#define COMPILER_OPT_NATIVE_DRIVER_ENVIRONMENT_H_

#include "config.h"
#include "files.h"
#include "names.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace mlgo {

inline void print_message(const std::string &kind, const std::string &message) {
  write_all(STDERR_FILENO, kind + ": mlgo: " + message + "\n");
}

[[noreturn]] inline void fail(const std::string &message, int status = 1) {
  print_message("error", message);
  _exit(status);
}

// The value of a boolean environment variable; nullopt if it is unset or empty.
inline std::optional<bool> boolean_variable(const char *name) {
  const char *value = std::getenv(name);
  if (!value || !*value)
    return std::nullopt;
  for (const char *yes : {"1", "yes", "true", "on"})
    if (strcasecmp(value, yes) == 0)
      return true;
  for (const char *no : {"0", "no", "false", "off"})
    if (strcasecmp(value, no) == 0)
      return false;
  fail(std::string(name) + ": expected 1 or 0, found " + value);
}

// The value of an environment variable that is a number; nullopt if it is unset or empty.
inline std::optional<uint64_t> number_variable(const char *name) {
  const char *value = std::getenv(name);
  if (!value || !*value)
    return std::nullopt;
  const std::string_view text(value);
  if (text.size() > 12 || text.find_first_not_of("0123456789") != std::string_view::npos)
    fail(std::string(name) + ": expected a whole number, found " + value);
  return std::strtoull(value, nullptr, 10);
}

// The compiler cache that started this process and will store its object, or empty. Not every cache can be detected.
inline std::string active_cache() {
  // ccache sets this variable, also for a prefix command, but not if it only forwards the command line.
  if (std::getenv("UNCACHED_ERR_FD"))
    return "ccache";
  std::string parent = read_file("/proc/" + std::to_string(getppid()) + "/comm");
  parent = parent.substr(0, parent.find('\n'));
  return parent == "sccache" || parent == "buildcache" ? parent : "";
}

// The path of this program, without symbolic links.
inline std::string own_path() {
  char path[PATH_MAX];
  // Without /proc, the path by which it was started.
  for (const char *name : {"/proc/self/exe", reinterpret_cast<const char *>(getauxval(AT_EXECFN))})
    if (name && realpath(name, path))
      return path;
  fail("cannot find the location of mlgo-clang; mount /proc");
}

// Whether the path is an executable other than this one.
inline bool is_compiler(const std::string &path) {
  struct stat status, own;
  return access(path.c_str(), X_OK) == 0 && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         stat(own_path().c_str(), &own) == 0 && (status.st_dev != own.st_dev || status.st_ino != own.st_ino);
}

// The variables, besides our own, by which clang, its linker and its assembler make other files of the same command
// line, with their values; one a line.
inline std::string variables_of_objects() {
  std::string text;
  for (const char *name :
       {"CCC_OVERRIDE_OPTIONS", "CLANG_NO_DEFAULT_CONFIG", "CLANG_CONFIG_PATH", "CLANG_MODULE_CACHE_PATH", "COMPILER_PATH",
        "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH", "INCLUDE", "LIB",
        "LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH", "SDKROOT",
        "MACOSX_DEPLOYMENT_TARGET", "IPHONEOS_DEPLOYMENT_TARGET", "TVOS_DEPLOYMENT_TARGET", "WATCHOS_DEPLOYMENT_TARGET",
        "XROS_DEPLOYMENT_TARGET", "DRIVERKIT_DEPLOYMENT_TARGET", "RC_DEBUG_OPTIONS", "RC_DEBUG_PREFIX_MAP"})
    if (const char *value = std::getenv(name))
      text += std::string("variable: ") + name + "=" + value + "\n";
  return text;
}

// The path of the first such compiler on PATH, or empty.
inline std::string compiler_on_path(const std::string &name) {
  const char *path = std::getenv("PATH");
  const std::string folders = path ? path : "/usr/bin";
  for (size_t start = 0; start <= folders.size();) {
    const size_t end = std::min(folders.find(':', start), folders.size());
    const std::string candidate = folders.substr(start, end - start) + "/" + name;
    if (candidate[0] == '/' && end > start && is_compiler(candidate))
      return candidate;
    start = end + 1;
  }
  return "";
}

// The compiler of the deployment that the driver is called for.
inline const config::Compiler &compiler_called(const ProgramName &name) {
  const config::Compiler *const compilers = config::kCompilers, *const end = compilers + config::kNumCompilers;
  const auto *found = std::find_if(compilers, end, [&](const config::Compiler &compiler) {
    return name.version() == std::to_string(compiler.major);
  });
  if (found != end)
    return *found;
  if (!name.names_clang() || name.version().empty())
    return config::kCompilers[0];
  fail(name.called() + ": the policy was not deployed for clang-" + name.version() + "; deploy it again with that --clang_path");
}

// The compiler that MLGO_CLANG names, or that of the deployment; if the latter was removed, one of the same version on
// PATH, unless it belongs to the same toolchain as the prefix. Returns its path, and its name for messages.
inline std::pair<std::string, std::string> find_clang(const config::Compiler &compiler, const std::string &prefix) {
  if (const char *given = std::getenv("MLGO_CLANG"); given && *given) {
    const std::string path = std::strchr(given, '/') ? given : compiler_on_path(given);
    if (!is_compiler(path))
      fail(std::string("MLGO_CLANG: expected a compiler, found ") + given, 127);
    return {path, std::string(base_name(path))};
  }
  const std::string name = "clang-" + std::to_string(compiler.major);
  const bool is_relative = compiler.clang[0] != '/';
  const std::string deployed = is_relative ? path_from(prefix, compiler.clang) : compiler.clang;
  if (is_compiler(deployed))
    return {deployed, name};
  const std::string other = is_relative ? "" : compiler_on_path(name);
  if (!other.empty())
    return {other, name};
  fail(deployed + " is gone" + (is_relative ? "" : ", and there is no " + name + " on PATH") +
           "; install it, set MLGO_CLANG, or deploy the policy again for another",
       127);
}

// Options by which a compiler that writes to a pipe formats its messages for the user's terminal.
inline std::vector<std::string> terminal_options() {
  const char *terminal = std::getenv("TERM");
  if (!isatty(STDERR_FILENO) || !terminal || std::strcmp(terminal, "dumb") == 0)
    return {};
  std::vector<std::string> options;
  if (!std::getenv("NO_COLOR"))
    options.push_back("-fcolor-diagnostics");
  winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
    options.push_back("-fmessage-length=" + std::to_string(size.ws_col));
  return options;
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_ENVIRONMENT_H_
