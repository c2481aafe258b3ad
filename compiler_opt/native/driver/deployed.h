// The commands of mlgo-clang itself: what a deployment is, for people and for compiler caches, and what it has done.

#ifndef COMPILER_OPT_NATIVE_DRIVER_DEPLOYED_H_
#define COMPILER_OPT_NATIVE_DRIVER_DEPLOYED_H_

#include "children.h"
#include "config.h"
#include "environment.h"
#include "files.h"
#include "identity.h"
#include "pass_options.h"
#include "policies.h"
#include "settings.h"
#include "statistics.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace mlgo {

// The commands of mlgo-clang itself, and its environment variables.
inline constexpr char kHelp[] = R"(
All other command lines are clang's (--help). Of mlgo-clang's own:
  --mlgo-help        this text
  --mlgo-info        everything that objects depend on, for compiler caches
  --mlgo-stats       what became of the compilations that MLGO_STATS has counted
  --mlgo-zero-stats  counts anew from now on

Environment variables, which override the settings (1 for yes, 0 for no):
  MLGO_DISABLE                 runs clang alone
  MLGO_STRICT                  fails where the policy or options cannot be used
  MLGO_NEVER_WORSE             compiles both ways, and keeps the smaller object
  MLGO_NEVER_WORSE_ABOVE_KB=N  the same for objects with more than N kB of text
  MLGO_CLANG=PATH              runs this clang, of the same major version
  MLGO_LOG=FILE                lists the decisions that differ from clang's
  MLGO_STATS=DIR               counts compilations in this folder
)";

// Whether an argument, if it is the only one, is such a command.
inline bool is_own_command(std::string_view argument) {
  return argument == "--mlgo-help" || argument == "--mlgo-info" || argument == "--mlgo-stats" ||
         argument == "--mlgo-zero-stats";
}

// A deployment, for one of its compilers.
struct Deployed {
  const config::Compiler &compiler;
  const std::vector<Policy> &policies;
  const Settings &settings;
  const std::string &prefix, &clang, &name;  // its folder; the compiler's path, and its name for messages

  // One screen.
  std::string help(const std::string &called) const {
    std::string text = called + ": " + name + " with the policy or options that are deployed for some levels\n\nprefix: " +
                       prefix + "\nclang: " + clang + "\n";
    for (const Policy &policy : policies)
      text += policy.summary();
    return text + PassOptions(compiler).summary() + settings.info() + kHelp;
  }

  // Everything that an object depends on besides its command line.
  std::string info() const {
    std::string text;
    for (const Policy &policy : policies)
      text += policy.info();
    text += PassOptions(compiler).info() + settings.info() + "clang: " + clang + " (" + identity(clang) + ")\n" +
            (*compiler.version ? std::string("only version: ") + compiler.version + "\n" : "");
    Children children;
    for (const std::string &library : libraries_of(clang, &children))
      if (starts_with(base_name(library), "libLLVM") || starts_with(base_name(library), "libclang"))
        text += "library: " + library + " (" + identity(library) + ")\n";
    return text + "driver: " + identity_by_content(own_path()) + "\n" + variables_of_objects();
  }
};

[[noreturn]] inline void run_own_command(std::string_view command, const std::string &called, const Deployed &deployed,
                                         const Statistics &statistics) {
  std::string text;
  if (command == "--mlgo-zero-stats")
    statistics.zero();
  else
    text = command == "--mlgo-stats" ? statistics.table() : command == "--mlgo-info" ? deployed.info() : deployed.help(called);
  if (!write_all(STDOUT_FILENO, text))
    fail(std::string("the output cannot be written: ") + std::strerror(errno));
  _exit(0);
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_DEPLOYED_H_
