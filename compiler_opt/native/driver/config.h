// What a deployment sets. compiler_opt.tools.deploy generates the definitions, so that the driver itself is compiled
// only once.

#pragma once

#include <cstddef>
#include <cstdint>

namespace mlgo::config {

// A file in the prefix's folder lib.
struct File {
  const char *name;
  long bytes;
  const char *fingerprint;
};

struct Compiler {
  int major;
  const char *clang;    // may be relative to the prefix
  const char *version;  // of LLVM, if no other may load the plugin; otherwise empty
  File plugin, decisions;
  const char *about_decisions;
};

extern const Compiler kCompilers[];  // the first is the default
extern const std::size_t kNumCompilers;
extern const char *const kLevels[];  // at which the policy decides
extern const std::size_t kNumLevels;
extern const bool kHasPolicy;
extern const char kPolicy[];  // its checksum
extern const bool kNeverWorse;
extern const std::uint64_t kNeverWorseAboveKb;  // for objects with more text; a kB is 1000 bytes
extern const bool kStrict;

}  // namespace mlgo::config
