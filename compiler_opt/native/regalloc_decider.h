// Decisions for the register allocator: by a policy, by the default advisor, or over a channel; and their log.

#ifndef COMPILER_OPT_NATIVE_REGALLOC_DECIDER_H_
#define COMPILER_OPT_NATIVE_REGALLOC_DECIDER_H_

#include "model_runner.h"
#include "plugin_environment.h"
#include "regalloc_policy.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace compiler_opt {

// Reports that the policy cannot be used, before any decision was made.
inline void useDefaultHeuristic(const std::string &Reason) {
  warnOrFail(Reason, "compiling with the default heuristic", "MLGO_REGALLOC_STRICT");
}

// A network and what its metadata say about it.
struct LoadedPolicy {
  RegallocPolicy Network;
  std::string Problem;       // `regalloc_eviction` or `regalloc_priority`
  ActionQuantizer Quantizer = {}; // of `regalloc_priority`

  // Reads the policy that the environment names, or else the built-in one. Returns null if there is neither, or on an
  // error, which it describes in `Error`.
  static std::unique_ptr<LoadedPolicy> read(std::string &Error) {
    const PolicyBytes Bytes = PolicyBytes::find("MLGO_REGALLOC_POLICY");
    Error = Bytes.Error;
    if (Error.empty() && !Bytes.Blob)
      return nullptr;
    auto Result = std::make_unique<LoadedPolicy>();
    if (Error.empty())
      if (const char *Message = Result->Network.load(Bytes.Blob, Bytes.Size, Bytes.IsEmbedded))
        Error = Message;
    if (Error.empty())
      Error = Result->readMetadata();
    if (Error.empty())
      return Result;
    Error = Bytes.Origin + ": " + Error;
    return nullptr;
  }

private:
  std::string readMetadata() {
    llvm::Expected<llvm::json::Value> Parsed = llvm::json::parse(Network.network().metadata());
    const llvm::json::Object *Metadata = Parsed ? Parsed->getAsObject() : nullptr;
    if (!Parsed)
      llvm::consumeError(Parsed.takeError());
    if (Metadata)
      Problem = Metadata->getString("problem").value_or("").str();
    if (Problem == "regalloc_eviction")
      return "";
    if (Problem != "regalloc_priority")
      return "expected a policy for regalloc_eviction or regalloc_priority, found one for " +
             (Problem.empty() ? "an unknown problem" : Problem);
    if (const llvm::json::Object *Scale = Metadata->getObject("scale"))
      Quantizer = {Scale->getNumber("lowest").value_or(0), Scale->getNumber("highest").value_or(0),
                   Scale->getNumber("steps").value_or(0)};
    return Quantizer.lowest < Quantizer.highest && Quantizer.steps >= 1
               ? ""
               : "expected a scale with lowest < highest and steps >= 1 in its metadata; export the policy again";
  }
};

// The policy of this process; null if the default advisor decides. Set before code is generated, constant afterwards.
inline const LoadedPolicy *ProcessPolicy = nullptr;

inline constexpr int64_t kNoCandidate = std::numeric_limits<int64_t>::max();

class RegallocDecider;

// The live interval that LLVM's ML advisor currently decides on in this thread. LLVM does not pass it to the model
// runner, so our advisors leave it here.
struct AdvisorQuery {
  RegallocDecider *Decider = nullptr;
  int64_t DefaultCandidate = kNoCandidate; // index of the register that the default evicts, in allocation order
  float DefaultPriority = 0;
  bool DiffersFromDefault = false; // the result: the decision is not the default's
};
inline thread_local AdvisorQuery CurrentQuery;

// Exists while LLVM's ML advisor runs.
class QueryScope {
public:
  explicit QueryScope(RegallocDecider &Decider) { CurrentQuery.Decider = &Decider; }
  ~QueryScope() { CurrentQuery = AdvisorQuery(); }
  QueryScope(const QueryScope &) = delete;
};

// Makes and logs the decisions of one code generator, which runs in one thread.
class RegallocDecider {
public:
  RegallocDecider() {
    if (ProcessPolicy)
      Policy = std::make_unique<LoadedPolicy>(*ProcessPolicy);
  }
  RegallocDecider(const RegallocDecider &) = delete;
  ~RegallocDecider() { flush(); }

  void switchContext(llvm::StringRef Context) {
    if (!WritesObservations)
      return;
    Buffer += "{\"context\":";
    llvm::raw_string_ostream(Buffer) << llvm::json::Value(llvm::json::fixUTF8(Context));
    Buffer += "}\n";
  }

  // Returns the address of the decision, whose type is that of the model's output.
  void *decide(ModelRunner &Model) {
    const std::vector<llvm::TensorSpec> &Specs = Model.*InputSpecs;
    const llvm::TensorSpec &Advice = Model.*OutputSpec;
    if (!IsStarted)
      start(Specs, Advice);
    // The last candidate means that nothing is evicted.
    CurrentQuery.DefaultCandidate = std::min(CurrentQuery.DefaultCandidate, LastCandidate);
    const char *Default = isEviction(Advice) ? reinterpret_cast<const char *>(&CurrentQuery.DefaultCandidate)
                                             : reinterpret_cast<const char *>(&CurrentQuery.DefaultPriority);
    const size_t Size = Advice.getTotalTensorBufferSize();
    if (WritesObservations)
      appendObservation(Model, Specs, Default, Size);
    if (In >= 0) {
      Buffer += '\n';
      flush();
      receive(Size);
    } else if (Policy) {
      decideByPolicy(Model, isEviction(Advice));
    } else {
      std::memcpy(Decision, Default, Size);
    }
    if (WritesObservations && In < 0) {
      Buffer.append(Decision, Size);
      Buffer += '\n';
      if (Buffer.size() > kFlushBytes)
        flush();
    }
    CurrentQuery.DiffersFromDefault = std::memcmp(Decision, Default, Size) != 0;
    return Decision;
  }

private:
  static constexpr size_t kFlushBytes = size_t(1) << 20;

  void flush() {
    size_t Done = 0;
    while (Out >= 0 && Done < Buffer.size()) {
      const ssize_t Written = ::write(Out, Buffer.data() + Done, Buffer.size() - Done);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        fail("cannot write " + Path + ": " + std::strerror(errno));
      Done += size_t(Written);
    }
    Buffer.clear();
  }

  void start(const std::vector<llvm::TensorSpec> &Specs, const llvm::TensorSpec &Advice) {
    IsStarted = true;
    if (Advice.getTotalTensorBufferSize() > sizeof Decision || Advice.getElementCount() != 1)
      fail("expected one number as the advice of LLVM's model, found " + std::to_string(Advice.getElementCount()));
    for (const llvm::TensorSpec &Spec : Specs)
      LastCandidate = std::max(LastCandidate, int64_t(Spec.getElementCount()) - 1);
    static std::atomic<bool> IsTaken{false};
    if (WritesObservations && IsTaken.exchange(true))
      fail("a log or a channel supports one code generator only, but this process runs several; link with "
           "-Wl,--lto-partitions=1 and without ThinLTO");
    if (const char *Base = variable("MLGO_REGALLOC_CHANNEL")) {
      // The other end opens the pipes in LLVM's order.
      In = open(std::string(Base) + ".in", O_RDONLY);
      Out = open(std::string(Base) + ".out", O_WRONLY);
    } else if (const char *Log = variable("MLGO_REGALLOC_LOG")) {
      Out = open(Log, O_WRONLY | O_CREAT | O_TRUNC);
    }
    if (WritesObservations)
      Buffer = header(Specs, Advice) + Buffer;
    if (Policy)
      bindPolicy(Specs);
  }

  void bindPolicy(const std::vector<llvm::TensorSpec> &Specs) {
    std::vector<FeatureSpec> Features;
    for (const llvm::TensorSpec &Spec : Specs)
      Features.push_back({Spec.name(), Spec.isElementType<float>(), size_t(Spec.getElementCount())});
    const std::string Error = Policy->Network.bind(Features);
    if (Error.empty())
      return;
    static std::once_flag IsReported;
    std::call_once(IsReported,
                   [&] { useDefaultHeuristic("the policy does not fit LLVM " LLVM_VERSION_STRING ": " + Error); });
    Policy.reset();
  }

  std::string header(const std::vector<llvm::TensorSpec> &Specs, const llvm::TensorSpec &Advice) const {
    std::string Text;
    llvm::raw_string_ostream Stream(Text);
    llvm::json::OStream Json(Stream);
    Json.object([&] {
      Json.attributeArray("features", [&] {
        for (const llvm::TensorSpec &Spec : Specs)
          Spec.toJSON(Json);
        if (isEviction(Advice))
          llvm::TensorSpec::createSpec<int64_t>("eviction_default", {1}).toJSON(Json);
        else
          llvm::TensorSpec::createSpec<float>("priority_default", {1}).toJSON(Json);
        if (In < 0)
          Advice.toJSON(Json);
      });
      Json.attributeBegin("advice");
      Advice.toJSON(Json);
      Json.attributeEnd();
    });
    Stream << '\n';
    return Stream.str();
  }

  void appendObservation(ModelRunner &Model, const std::vector<llvm::TensorSpec> &Specs, const char *Default,
                         size_t DefaultSize) {
    Buffer += "{\"observation\":" + std::to_string(NumObservations++) + "}\n";
    for (size_t Index = 0; Index < Specs.size(); ++Index)
      Buffer.append(static_cast<const char *>(Model.getTensorUntyped(Index)), Specs[Index].getTotalTensorBufferSize());
    Buffer.append(Default, DefaultSize);
  }

  void decideByPolicy(ModelRunner &Model, bool IsEviction) {
    Tensors.resize((Model.*InputSpecs).size());
    for (size_t Index = 0; Index < Tensors.size(); ++Index)
      Tensors[Index] = Model.getTensorUntyped(Index);
    if (IsEviction) {
      const int64_t Candidate = Policy->Network.choose_candidate(Tensors, CurrentQuery.DefaultCandidate);
      std::memcpy(Decision, &Candidate, sizeof Candidate);
    } else {
      const float Priority = Policy->Quantizer.advice(Policy->Network.mean_action(Tensors));
      std::memcpy(Decision, &Priority, sizeof Priority);
    }
  }

  int open(const std::string &Name, int Flags) {
    Path = Name;
    const int Descriptor = ::open(Name.c_str(), Flags | O_CLOEXEC, 0666);
    if (Descriptor < 0)
      fail("cannot open " + Name + ": " + std::strerror(errno));
    return Descriptor;
  }

  void receive(size_t Size) {
    size_t Done = 0;
    while (Done < Size) {
      const ssize_t Count = ::read(In, Decision + Done, Size - Done);
      if (Count < 0 && errno == EINTR)
        continue;
      if (Count <= 0)
        fail("the other end of the channel was closed");
      Done += size_t(Count);
    }
  }

  static bool isEviction(const llvm::TensorSpec &Advice) { return Advice.isElementType<int64_t>(); }

  std::unique_ptr<LoadedPolicy> Policy; // a copy for this thread; null if the default advisor decides
  const bool WritesObservations = variable("MLGO_REGALLOC_CHANNEL") || variable("MLGO_REGALLOC_LOG");
  bool IsStarted = false;
  int64_t LastCandidate = 0;
  int In = -1, Out = -1;
  std::string Path, Buffer; // of the file that is written
  uint64_t NumObservations = 0;
  std::vector<const void *> Tensors;
  alignas(8) char Decision[8] = {};
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_REGALLOC_DECIDER_H_
