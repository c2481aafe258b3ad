// The training log of the inliner plugin.
//
// It has the format of LLVM's TrainingLogger (see llvm/training_log.py). After LLVM's features, each record has the
// requested ones of callsite_features.h, `inlining_default` (if known), `inlining_decision`, `caller` and `callee`
// (indices into the NUL-separated names in FILE.functions), `caller_body` (see decision_replay.h), `inlined` (whether
// the call was inlined in the end), `replayed` (whether the decision was in the decision file, if there is one), and
// `logits` (if a policy decides).

#ifndef COMPILER_OPT_NATIVE_INLINER_LOG_H_
#define COMPILER_OPT_NATIVE_INLINER_LOG_H_

#include "decision_replay.h"
#include "inline_advisor.h"
#include "plugin_environment.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace compiler_opt {

inline constexpr size_t kNumActions = 2; // not to inline, to inline
inline constexpr size_t kFlushBytes = size_t(1) << 20;

inline std::string jsonString(llvm::StringRef Text) {
  std::string Result;
  llvm::raw_string_ostream Stream(Result);
  Stream << llvm::json::Value(llvm::json::fixUTF8(Text));
  return Result;
}

// The two files of a log. All modules of a process share them; a linker may compile these in parallel.
class LogFiles {
public:
  LogFiles(std::string Path, bool HasDefault, bool HasLogits, bool HasReplayed, std::vector<size_t> ExtraColumns)
      : HasDefault(HasDefault), HasLogits(HasLogits), HasReplayed(HasReplayed), ExtraColumns(std::move(ExtraColumns)),
        Path(std::move(Path)) {}

  const bool HasDefault;
  const bool HasLogits;
  const bool HasReplayed;
  const std::vector<size_t> ExtraColumns; // indices in `availableFeatures` of what to log after LLVM's features

  int64_t nameIndex(const llvm::Function &F) {
    // Names are recorded at once: a function may be deleted, and its address reused, before the log is written.
    const std::lock_guard<std::mutex> Lock(Mutex);
    const llvm::StringRef Name = symbolName(F);
    const auto [Position, IsNew] = Indices.try_emplace(Name, int64_t(Indices.size()));
    if (IsNew) {
      NewNames.append(Name.data(), Name.size());
      NewNames.push_back('\0');
    }
    return Position->second;
  }

  // Appends complete records of one module.
  void append(const std::string &Context, const std::string &Records) {
    const std::lock_guard<std::mutex> Lock(Mutex);
    if (Failed)
      return;
    std::string Text;
    if (Log < 0) {
      Text = header();
      Log = open(Path);
      Names = open(Path + ".functions");
    }
    if (Context != CurrentContext) {
      CurrentContext = Context;
      Text += "{\"context\":" + jsonString(Context) + "}\n";
    }
    // The names come first, since records refer to them.
    write(Names, NewNames);
    write(Log, Text);
    write(Log, Records);
    NewNames.clear();
  }

private:
  std::string header() const {
    std::string Text = "{\"features\":[";
    const auto Add = [&Text](const std::string &Name, const char *Type, size_t Extent) {
      Text += "{\"name\":" + jsonString(Name) + ",\"type\":\"" + Type + "\",\"port\":0,\"shape\":[" +
              std::to_string(Extent) + "]}";
    };
    for (const llvm::TensorSpec &Spec : llvmFeatures()) {
      Add(Spec.name(), "int64_t", 1);
      Text += ',';
    }
    for (const size_t Column : ExtraColumns) {
      Add(availableFeatures()[Column].name(), "int64_t", 1);
      Text += ',';
    }
    if (HasDefault) {
      Add(llvm::DefaultDecisionName, "int64_t", 1);
      Text += ',';
    }
    for (const char *Name : {llvm::DecisionName, "caller", "callee"}) {
      Add(Name, "int64_t", 1);
      Text += ',';
    }
    Add("caller_body", "uint64_t", 1);
    Text += ',';
    Add("inlined", "int64_t", 1);
    if (HasReplayed) {
      Text += ',';
      Add("replayed", "int64_t", 1);
    }
    if (HasLogits) {
      Text += ',';
      Add("logits", "float", kNumActions);
    }
    Text += "],\"advice\":";
    Add(llvm::DecisionName, "int64_t", 1);
    return Text + "}\n";
  }

  int open(const std::string &Name) {
    const int Descriptor = ::open(Name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (Descriptor < 0)
      stopLogging(Name);
    return Descriptor;
  }

  void write(int Descriptor, const std::string &Text) {
    size_t Done = 0;
    while (Done < Text.size() && !Failed) {
      const ssize_t Written = ::write(Descriptor, Text.data() + Done, Text.size() - Done);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        return stopLogging(Path);
      Done += size_t(Written);
    }
  }

  void stopLogging(const std::string &Name) {
    const std::string Reason = std::strerror(errno);
    if (!Failed)
      warnOrFail("cannot write the log " + Name + ": " + Reason, "continuing without a log", "MLGO_INLINER_STRICT");
    Failed = true;
  }

  const std::string Path;
  std::mutex Mutex;
  bool Failed = false;
  int Log = -1, Names = -1;
  std::optional<std::string> CurrentContext;
  std::string NewNames;
  llvm::StringMap<int64_t> Indices;
};

// The records of one module.
class ModuleLog {
public:
  ModuleLog(LogFiles &Files, std::string Context) : Files(Files), Context(std::move(Context)) {}

  ModuleLog(const ModuleLog &) = delete;

  ~ModuleLog() {
    if (!Records.empty())
      Files.append(Context, Records);
  }

  void add(const llvm::CallBase &CB, const std::vector<int64_t> &Observation, uint64_t CallerBody, bool Default,
           bool Decision, bool IsReplayed, const float *Logits) {
    if (Records.size() > kFlushBytes) {
      Files.append(Context, Records);
      Records.clear();
    }
    Records += "{\"observation\":";
    Records += std::to_string(NumObservations++);
    Records += "}\n";
    add(Observation.data(), llvmFeatures().size());
    for (const size_t Column : Files.ExtraColumns)
      add(Observation[Column]);
    if (Files.HasDefault)
      add(int64_t(Default));
    add(int64_t(Decision));
    add(Files.nameIndex(*CB.getCaller()));
    add(Files.nameIndex(*CB.getCalledFunction()));
    add(&CallerBody, 1);
    InlinedOffset = Records.size();
    add(int64_t(0));
    if (Files.HasReplayed)
      add(int64_t(IsReplayed));
    if (Files.HasLogits)
      add(Logits, kNumActions);
    Records += '\n';
  }

  // Records that the call of the last record was inlined. The inliner reports this before it asks for more advice.
  void recordInlined() {
    const int64_t Inlined = 1;
    std::memcpy(&Records[InlinedOffset], &Inlined, sizeof Inlined);
  }

private:
  template <typename T> void add(const T *Values, size_t Count) {
    Records.append(reinterpret_cast<const char *>(Values), Count * sizeof(T));
  }
  void add(int64_t Value) { add(&Value, 1); }

  LogFiles &Files;
  const std::string Context;
  std::string Records;
  size_t InlinedOffset = 0; // of the last record's field `inlined`
  uint64_t NumObservations = 0;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_INLINER_LOG_H_
