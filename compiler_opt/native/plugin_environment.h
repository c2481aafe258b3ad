// What our pass plugins have in common: what the environment says, and where a policy comes from.

#ifndef COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_
#define COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_

#include "llvm-c/Core.h"
#include "llvm/Config/llvm-config.h"
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

// A policy that is built in: a generated source file defines both.
extern "C" {
extern const unsigned char mlgo_policy_blob[] __attribute__((weak));
extern const size_t mlgo_policy_blob_size __attribute__((weak));
}

namespace compiler_opt {

// Of the environment; null when it is missing or empty.
inline const char *variable(const char *Name) {
  const char *Value = std::getenv(Name);
  return Value && *Value ? Value : nullptr;
}

inline bool isSet(const char *Name) {
  const char *Value = variable(Name);
  return Value && std::strcmp(Value, "0") != 0;
}

// Ends the compilation.
[[noreturn]] inline void fail(const std::string &Message) {
  llvm::errs() << "error: mlgo: " + Message + "\n";
  // Removes the compiler's half-written outputs.
  llvm::sys::RunInterruptHandlers();
  _exit(1);
}

// Something cannot be done as told. Ends the process when the variable `Strict` asks for that.
inline void complain(const std::string &Message, const char *Consequence, const char *Strict) {
  if (isSet(Strict))
    fail(Message);
  llvm::errs() << "warning: mlgo: " + Message + "; " + Consequence + "\n";
}

// What is wrong when an LLVM loads a plugin that was built for another; nothing when it is the right one.
inline std::string wrongVersion() {
  unsigned Major = 0;
  LLVMGetVersion(&Major, nullptr, nullptr);
  if (Major == LLVM_VERSION_MAJOR)
    return "";
  return "this plugin was built for LLVM " + std::to_string(LLVM_VERSION_MAJOR) + ", but loaded by LLVM " +
         std::to_string(Major);
}

// The bytes of a policy's native form.
struct PolicyBytes {
  const void *Blob = nullptr; // null: there is none
  size_t Size = 0;
  std::string Origin; // what messages call it
  std::string Wrong;  // why there is none though one was named

  // Of the file that the variable names, else of the policy that is built in.
  static PolicyBytes find(const char *Variable) {
    PolicyBytes Found;
    const char *Path = variable(Variable);
    if (!Path) {
      Found.Origin = "the policy that is built in";
      if (&mlgo_policy_blob_size) {
        Found.Blob = mlgo_policy_blob;
        Found.Size = mlgo_policy_blob_size;
      }
      return Found;
    }
    Found.Origin = std::string("policy ") + Path;
    const int Descriptor = open(Path, O_RDONLY | O_CLOEXEC);
    if (Descriptor < 0) {
      Found.Wrong = std::strerror(errno);
      return Found;
    }
    struct stat Status;
    if (fstat(Descriptor, &Status) == 0 && S_ISREG(Status.st_mode) && Status.st_size > 0) {
      Found.Size = size_t(Status.st_size);
      // Stays mapped as long as the process lives.
      void *Mapped = mmap(nullptr, Found.Size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, Descriptor, 0);
      Found.Blob = Mapped == MAP_FAILED ? nullptr : Mapped;
    }
    close(Descriptor);
    if (!Found.Blob)
      Found.Wrong = "empty, or not an ordinary file";
    return Found;
  }
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_PLUGIN_ENVIRONMENT_H_
