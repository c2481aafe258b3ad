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

// Options of LLVM's passes for an optimisation level.
struct OptionSet {
  const char *level;           // null after the last set
  const char *architecture;    // of the target; empty for all that have no set of their own for this level
  const char *const *options;  // null after the last one
};

struct Compiler {
  int major;
  const char *clang;         // may be relative to the prefix
  const char *version;       // of LLVM, if no other may load the plugins; otherwise empty
  const char *architecture;  // of its default target
  const OptionSet *sets;
};

// The files of a policy for a compiler.
struct Plugin {
  File library, decisions;
  const char *about_decisions;
};

struct Policy {
  const char *problem;
  const char *checksum;
  bool has_network;  // false if the compiler's own heuristic decides where no decision is replayed
  bool is_for_size;  // whether a smaller object is better
  const char *const *levels;  // at which it decides
  std::size_t num_levels;
  const Plugin *plugins;  // for each of kCompilers
};

extern const Compiler kCompilers[];  // the first is the default
extern const std::size_t kNumCompilers;
extern const Policy kPolicies[];  // those that decide at the same level have different plugins; one more is empty
extern const std::size_t kNumPolicies;
extern const bool kNeverWorse;
extern const std::uint64_t kNeverWorseAboveKb;  // for objects with more text; a kB is 1000 bytes
extern const bool kStrict;

}  // namespace mlgo::config
