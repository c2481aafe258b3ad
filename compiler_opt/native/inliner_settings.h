// The settings of the inliner plugin, read from its environment variables (see inliner_plugin.cpp).

#ifndef COMPILER_OPT_NATIVE_INLINER_SETTINGS_H_
#define COMPILER_OPT_NATIVE_INLINER_SETTINGS_H_

#include "decision_file.h"
#include "inline_advisor.h"
#include "inliner_log.h"
#include "plugin_environment.h"
#include "policy_network.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Config/llvm-config.h"

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace compiler_opt {

enum class InlinerMode { Policy, Default };

// Read once per process, and constant afterwards.
struct InlinerSettings {
  InlinerMode Mode = InlinerMode::Policy;
  Levels DecidesAt{"MLGO_INLINER_LEVELS"};
  PolicyNetwork Network;
  std::vector<size_t> Columns; // indices of the policy's features in `availableFeatures`
  // By the policy or the log.
  bool NeedsCallSiteFeatures = false, NeedsHotness = false, NeedsDefaultFeature = false;
  double Temperature = 0;
  uint64_t Seed = 0;
  std::optional<DecisionFile> Decisions; // to replay
  std::unique_ptr<LogFiles> Log;
  std::string Differences; // file to append to, or empty

  // Returns an error message, or an empty string on success.
  std::string read() {
    const char *ModeName = variable("MLGO_INLINER_MODE");
    if (ModeName && std::strcmp(ModeName, "default") == 0)
      Mode = InlinerMode::Default;
    else if (ModeName && std::strcmp(ModeName, "policy") != 0)
      return std::string("MLGO_INLINER_MODE: expected policy or default, found ") + ModeName;
    char *End = nullptr;
    if (const char *Text = variable("MLGO_INLINER_TEMPERATURE")) {
      Temperature = std::strtod(Text, &End);
      if (*End || !(Temperature >= 0) || std::isinf(Temperature))
        return std::string("MLGO_INLINER_TEMPERATURE: expected a finite number of at least 0, found ") + Text;
    }
    if (const char *Text = variable("MLGO_INLINER_SEED")) {
      errno = 0;
      Seed = std::strtoull(Text, &End, 10);
      if (*End || *Text == '-' || errno)
        return std::string("MLGO_INLINER_SEED: expected an integer from 0 to 2^64 - 1, found ") + Text;
    }
    for (const llvm::TensorSpec &Spec : availableFeatures())
      if (!Spec.isElementType<int64_t>() || Spec.getElementCount() != 1)
        return "the feature " + Spec.name() + " of LLVM " LLVM_VERSION_STRING " is not an int64 scalar";
    if (Mode == InlinerMode::Policy) {
      std::string Error = readPolicy();
      if (!Error.empty())
        return Error;
    }
    if (const char *Path = variable("MLGO_INLINER_DECISIONS")) {
      const std::string Error = readDecisions(Path);
      if (!Error.empty())
        warnOrFail(Error, "continuing without its decisions", "MLGO_INLINER_STRICT");
    }
    if (const char *Path = variable("MLGO_INLINER_DIFFERENCES"))
      Differences = Path;
    if (const char *Path = variable("MLGO_INLINER_LOG")) {
      const bool HasPolicy = Mode == InlinerMode::Policy;
      std::vector<size_t> Extra;
      const char *const Names = variable("MLGO_INLINER_LOG_FEATURES");
      llvm::SmallVector<llvm::StringRef, 32> Wanted;
      llvm::StringRef(Names ? Names : "").split(Wanted, ',', -1, /*KeepEmpty=*/false);
      for (const llvm::StringRef Name : Wanted) {
        Extra.push_back(columnOf(Name));
        if (Extra.back() == availableFeatures().size())
          return "MLGO_INLINER_LOG_FEATURES: expected features of the plugin, found " + Name.str();
      }
      Log = std::make_unique<LogFiles>(Path, !HasPolicy || isSet("MLGO_INLINER_LOG_DEFAULT"), HasPolicy,
                                       Decisions.has_value(), std::move(Extra));
    }
    return "";
  }

private:
  // The index of a feature in `availableFeatures`; their number if there is none of this name.
  size_t columnOf(llvm::StringRef Name) {
    const std::vector<llvm::TensorSpec> &Available = availableFeatures();
    size_t Column = 0;
    while (Column < Available.size() && Available[Column].name() != Name)
      ++Column;
    const auto IndexOf = [](CallSiteFeature Feature) {
      return llvmFeatures().size() + static_cast<size_t>(Feature);
    };
    if (Column >= IndexOf(CallSiteFeature::DefaultDecision))
      NeedsDefaultFeature |= Column < Available.size();
    else if (Column >= IndexOf(CallSiteFeature::CallSiteFrequency))
      NeedsHotness = true;
    else
      NeedsCallSiteFeatures |= Column >= llvmFeatures().size();
    return Column;
  }

  std::string readPolicy() {
    const PolicyBytes Bytes = PolicyBytes::find("MLGO_INLINER_POLICY");
    const std::string &Origin = Bytes.Origin;
    if (!Bytes.Error.empty())
      return Origin + ": " + Bytes.Error;
    if (!Bytes.Blob)
      return "no policy: none is built in, and MLGO_INLINER_POLICY names none";
    if (const char *Error = Network.load(Bytes.Blob, Bytes.Size, Bytes.IsEmbedded))
      return Origin + ": " + Error;
    PolicyBytesSize = Bytes.Size;
    std::memcpy(&PolicyChecksum, static_cast<const char *>(Bytes.Blob) + 12, sizeof PolicyChecksum);
    if (Network.num_actions() != kNumActions)
      return Origin + ": expected " + std::to_string(kNumActions) + " actions, found " +
             std::to_string(Network.num_actions());
    for (size_t Index = 0; Index < Network.num_features(); ++Index) {
      const std::string Name = Network.feature_name(Index);
      const size_t Column = columnOf(Name);
      if (Column == availableFeatures().size())
        return Origin + ": needs the feature " + Name + ", which LLVM " LLVM_VERSION_STRING " does not compute";
      Columns.push_back(Column);
    }
    return "";
  }

  // A file that cannot be used, for whatever reason, is none.
  std::string readDecisions(const char *Path) {
    const PolicyBytes Bytes = PolicyBytes::map(Path, std::string("decision file ") + Path);
    if (!Bytes.Blob)
      return Bytes.Origin + ": " + Bytes.Error;
    DecisionFile File;
    if (const char *Error = File.load(Bytes.Blob, Bytes.Size))
      return Bytes.Origin + ": " + Error;
    if (File.llvm_major() != LLVM_VERSION_MAJOR)
      return Bytes.Origin + ": made for LLVM " + std::to_string(File.llvm_major()) + ", but this is LLVM " +
             std::to_string(LLVM_VERSION_MAJOR);
    if (File.policy_checksum() != PolicyChecksum || File.policy_bytes() != PolicyBytesSize)
      return Bytes.Origin + ": made with " + policyName(File.policy_checksum(), File.policy_bytes()) +
             ", but this is " + policyName(PolicyChecksum, PolicyBytesSize);
    Decisions = File;
    return "";
  }

  // As in policies/decisions.py.
  static std::string policyName(uint32_t Checksum, size_t Size) {
    if (Size == 0)
      return "the default decisions";
    std::string Digits;
    for (int Shift = 28; Shift >= 0; Shift -= 4)
      Digits += "0123456789abcdef"[(Checksum >> Shift) & 15];
    return "the policy " + Digits + "-" + std::to_string(Size);
  }

  // Of the policy's native form; 0 for the default.
  uint32_t PolicyChecksum = 0;
  size_t PolicyBytesSize = 0;
};

// The settings of this process; null, after one message, if they are invalid.
inline const InlinerSettings *inlinerSettings() {
  static const InlinerSettings *const Settings = []() -> const InlinerSettings * {
    auto Read = std::make_unique<InlinerSettings>();
    const std::string Error = Read->read();
    if (Error.empty())
      // Never freed: threads of a linker may still compile while static objects are destroyed.
      return Read.release();
    warnOrFail(Error, "compiling with the default heuristic", "MLGO_INLINER_STRICT");
    return nullptr;
  }();
  return Settings;
}

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_INLINER_SETTINGS_H_
