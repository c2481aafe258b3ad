// The native form of a decision file, in plain C++17: which single inlining decisions to replay.
//
//   compiler_opt::DecisionFile file;
//   if (const char *error = file.load(blob, size)) ...;            // the blob is invalid
//   if (const auto *caller = file.find(name, body))                // a function with decisions, unchanged
//     std::optional<bool> advice = file.advice(*caller, callee, ordinal);
//
// compiler_opt/policies/decisions.py writes and describes the blob. It is used in place: map the file. load() checks all
// of it, so that a damaged or hostile blob is rejected and never read out of bounds.

#ifndef COMPILER_OPT_NATIVE_DECISION_FILE_H_
#define COMPILER_OPT_NATIVE_DECISION_FILE_H_

#include "policy_network.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>

namespace compiler_opt {

// A file in a blob, which must outlive it. Cheap to copy; several threads may use one concurrently.
class DecisionFile {
 public:
  static constexpr uint32_t kVersion = 1;

  // The decisions in one function. `name` is the GUID of its symbol name, `body` its fingerprint.
  struct Caller {
    uint64_t name;
    uint64_t body;
    uint32_t first;  // index of its first decision
    uint32_t count;
  };
  static_assert(sizeof(Caller) == 24, "no padding");

  // Uses a blob of `size` bytes in place. Returns nullptr, or a one-line error message; the file is then empty.
  const char *load(const void *blob, size_t size) {
    DecisionFile loaded;
    if (const char *error = loaded.parse(static_cast<const unsigned char *>(blob), size)) {
      *this = DecisionFile();
      return error;
    }
    *this = loaded;
    return nullptr;
  }

  size_t num_decisions() const { return header_.num_decisions; }
  uint32_t llvm_major() const { return header_.llvm_major; }

  // The base policy's native form: the CRC-32 in its header, and its size. Both are 0 for the default.
  uint32_t policy_checksum() const { return header_.policy_checksum; }
  uint32_t policy_bytes() const { return header_.policy_bytes; }

  // Whether there are decisions in functions of this name, whatever their bodies.
  bool has_caller(uint64_t name) const {
    const Caller *found = lower_bound(name, 0);
    return found != end() && found->name == name;
  }

  // The decisions in a function; nullptr if there are none.
  const Caller *find(uint64_t name, uint64_t body) const {
    const Caller *found = lower_bound(name, body);
    return found != end() && found->name == name && found->body == body ? found : nullptr;
  }

  // The decision on a call; nullopt if there is none.
  std::optional<bool> advice(const Caller &caller, uint64_t callee, uint32_t ordinal) const {
    const auto key = [](const Decision &decision) { return std::make_tuple(decision.callee, decision.ordinal); };
    const Decision *begin = decisions_ + caller.first, *end = begin + caller.count;
    const Decision *found = std::lower_bound(begin, end, std::make_tuple(callee, ordinal),
                                             [&](const Decision &decision, const auto &k) { return key(decision) < k; });
    if (found == end || found->callee != callee || found->ordinal != ordinal)
      return std::nullopt;
    return found->advice != 0;
  }

 private:
  struct Decision {
    uint64_t callee;
    uint32_t ordinal;
    uint32_t advice;
  };
  static_assert(sizeof(Decision) == 16, "no padding");

  // The blob's header; little-endian.
  struct Header {
    unsigned char magic[8];
    uint32_t version;
    uint32_t checksum;  // CRC-32 of everything after this field
    uint64_t size;      // of the blob, in bytes
    uint32_t llvm_major;
    uint32_t num_callers;
    uint32_t num_decisions;
    uint32_t about_bytes;
    uint32_t policy_checksum;
    uint32_t policy_bytes;
  };
  static_assert(sizeof(Header) == 48, "no padding");
  static constexpr size_t kChecksummedFrom = 16;

  const char *parse(const unsigned char *blob, size_t size) {
    Header header;
    if (blob == nullptr || size < sizeof(header))
      return "not a decision file: too short";
    if (reinterpret_cast<uintptr_t>(blob) % 8 != 0)
      return "the decision file is not aligned to 8 bytes";
    std::memcpy(&header, blob, sizeof(header));
    if (std::memcmp(header.magic, "mlgo-dec", sizeof(header.magic)) != 0)
      return "not a decision file: expected it to begin with `mlgo-dec`";
    if (header.version != kVersion)
      return header.version == kVersion << 24 ? "the decision file needs a little-endian machine"
                                              : "the decision file has another format version; deploy it again";
    if (header.size != size)
      return header.size > size ? "the decision file is truncated" : "the decision file is longer than its header says";
    if (internal::crc32(blob + kChecksummedFrom, size - kChecksummedFrom) != header.checksum)
      return "the decision file is damaged: its checksum does not match";
    // No overflow: each term is below 2^37.
    const uint64_t callers_bytes = uint64_t{header.num_callers} * sizeof(Caller);
    const uint64_t decisions_bytes = uint64_t{header.num_decisions} * sizeof(Decision);
    if (sizeof(Header) + callers_bytes + decisions_bytes + header.about_bytes != size || header.about_bytes % 8 != 0)
      return "the decision file's sections do not add up to its size";
    header_ = header;
    callers_ = reinterpret_cast<const Caller *>(blob + sizeof(Header));
    decisions_ = reinterpret_cast<const Decision *>(blob + sizeof(Header) + callers_bytes);
    return check_records();
  }

  const char *check_records() const {
    uint64_t num_decisions = 0;
    for (const Caller *caller = callers_; caller != end(); ++caller) {
      if (caller->first != num_decisions || header_.num_decisions - num_decisions < caller->count)
        return "a function's decisions in the decision file are out of range";
      num_decisions += caller->count;
      if (caller != callers_ && !(key(caller[-1]) < key(*caller)))
        return "the decision file's functions are not sorted";
      for (uint32_t index = 0; index < caller->count; ++index) {
        const Decision *decision = decisions_ + caller->first + index;
        if (decision->advice > 1)
          return "a decision in the decision file is neither 0 nor 1";
        if (index != 0 && !(std::make_tuple(decision[-1].callee, decision[-1].ordinal) <
                            std::make_tuple(decision->callee, decision->ordinal)))
          return "the decision file's decisions are not sorted";
      }
    }
    return num_decisions == header_.num_decisions ? nullptr : "decisions in the decision file belong to no function";
  }

  static std::tuple<uint64_t, uint64_t> key(const Caller &caller) { return {caller.name, caller.body}; }

  const Caller *end() const { return callers_ + header_.num_callers; }

  const Caller *lower_bound(uint64_t name, uint64_t body) const {
    return std::lower_bound(callers_, end(), std::make_tuple(name, body),
                            [](const Caller &caller, const auto &k) { return key(caller) < k; });
  }

  Header header_ = {};
  const Caller *callers_ = nullptr;
  const Decision *decisions_ = nullptr;
};

}  // namespace compiler_opt

#endif  // COMPILER_OPT_NATIVE_DECISION_FILE_H_
