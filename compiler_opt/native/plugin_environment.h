// What the pass plugins share: environment variables, messages, and loading a policy.

#ifndef COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_
#define COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_

#include "llvm-c/Core.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Passes/OptimizationLevel.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

// The policy that is built into the plugin, if any: a generated source file defines both.
extern "C" {
extern const unsigned char mlgo_policy_blob[] __attribute__((weak));
extern const size_t mlgo_policy_blob_size __attribute__((weak));
}

namespace compiler_opt {

// The value of an environment variable; null if it is unset or empty.
inline const char *variable(const char *Name) {
  const char *Value = std::getenv(Name);
  return Value && *Value ? Value : nullptr;
}

inline bool isSet(const char *Name) {
  const char *Value = variable(Name);
  return Value && std::strcmp(Value, "0") != 0;
}

// Reports an error and ends the process.
[[noreturn]] inline void fail(const std::string &Message) {
  llvm::errs() << "error: mlgo: " + Message + "\n";
  // Removes the compiler's incomplete output files.
  llvm::sys::RunInterruptHandlers();
  _exit(1);
}

// Reports that the settings cannot be followed: as an error that ends the process if the environment variable
// `StrictVariable` is set, else as a warning that also states the consequence.
inline void warnOrFail(const std::string &Message, const char *Consequence, const char *StrictVariable) {
  if (isSet(StrictVariable))
    fail(Message);
  llvm::errs() << "warning: mlgo: " + Message + "; " + Consequence + "\n";
}

// An error message if the LLVM that loaded the plugin is not the version it was built for, or not the version that
// MLGO_LLVM_VERSION allows; otherwise empty.
inline std::string versionMismatch() {
  unsigned Major = 0, Minor = 0, Patch = 0;
  LLVMGetVersion(&Major, &Minor, &Patch);
  if (Major != LLVM_VERSION_MAJOR)
    return "this plugin was built for LLVM " + std::to_string(LLVM_VERSION_MAJOR) + ", but was loaded by LLVM " +
           std::to_string(Major);
  const std::string Found = std::to_string(Major) + "." + std::to_string(Minor) + "." + std::to_string(Patch);
  const char *Only = variable("MLGO_LLVM_VERSION");
  if (Only && Found != Only)
    return std::string("the policy was deployed for LLVM ") + Only + " only, but this is LLVM " + Found;
  return "";
}

// The optimisation levels at which the policy decides, named in an environment variable such as `Oz,Os`; by default all.
class Levels {
public:
  explicit Levels(const char *Variable) : Names(variable(Variable) ? variable(Variable) : "") {}

  bool isEverywhere() const { return Names.empty(); }
  bool contains(llvm::StringRef Name) const {
    return isEverywhere() || ("," + Names + ",").find(("," + Name + ",").str()) != std::string::npos;
  }
  bool contains(llvm::OptimizationLevel Level) const {
    return contains(Level.getSizeLevel() == 2   ? "Oz"
                    : Level.getSizeLevel() == 1 ? "Os"
                                                : "O" + std::to_string(Level.getSpeedupLevel()));
  }

private:
  std::string Names;
};

// The content of a native policy, or of a decision file.
struct PolicyBytes {
  const void *Blob = nullptr; // null if there is none
  size_t Size = 0;
  bool IsEmbedded = false; // in the plugin
  std::string Origin; // names it in messages
  std::string Error;  // why the file cannot be read, if so

  // Maps a file; `Origin` names it in messages.
  static PolicyBytes map(const char *Path, std::string Origin) {
    PolicyBytes Found;
    Found.Origin = std::move(Origin);
    const int Descriptor = open(Path, O_RDONLY | O_CLOEXEC);
    if (Descriptor < 0) {
      Found.Error = std::strerror(errno);
      return Found;
    }
    struct stat Status;
    if (fstat(Descriptor, &Status) == 0 && S_ISREG(Status.st_mode) && Status.st_size > 0) {
      Found.Size = size_t(Status.st_size);
      // Never unmapped.
      void *Mapped = mmap(nullptr, Found.Size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, Descriptor, 0);
      Found.Blob = Mapped == MAP_FAILED ? nullptr : Mapped;
    }
    close(Descriptor);
    if (!Found.Blob)
      Found.Error = "empty, or not a regular file";
    return Found;
  }

  // Maps the file that the environment variable names, or else returns the policy that is built in.
  static PolicyBytes find(const char *Variable) {
    if (const char *Path = variable(Variable))
      return map(Path, std::string("policy ") + Path);
    PolicyBytes Found;
    Found.Origin = "the built-in policy";
    if (&mlgo_policy_blob_size) {
      Found.IsEmbedded = true;
      Found.Blob = mlgo_policy_blob;
      Found.Size = mlgo_policy_blob_size;
    }
    return Found;
  }
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_
