// The log of the decisions that differ from the compiler's default: a JSON object per line.
//
//   {"callee": "area", "caller": "unit", "decision": "inline", "inlined": true, "location": "lean.c:14:53",
//    "module": "lean.c", "ordinal": 0, "replayed": false}
//
// `ordinal` is the number of earlier decisions on the same callee in the caller, as in decision files; `inlined`,
// whether the call was inlined in the end; `replayed`, whether the decision was in the decision file. `location` is
// missing without debug information.

#ifndef COMPILER_OPT_NATIVE_DIFFERENCE_LOG_H_
#define COMPILER_OPT_NATIVE_DIFFERENCE_LOG_H_

#include "decision_replay.h"
#include "plugin_environment.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/DebugLoc.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

namespace compiler_opt {

// The differences in one module. They are appended to the file at once, so that many compilers can share it.
class DifferenceLog {
public:
  DifferenceLog(std::string Path, llvm::StringRef ModuleName) : Path(std::move(Path)), ModuleName(ModuleName) {}

  DifferenceLog(const DifferenceLog &) = delete;

  ~DifferenceLog() {
    finishLine();
    if (Lines.empty())
      return;
    const int Descriptor = open(Path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const ssize_t Written = Descriptor < 0 ? -1 : write(Descriptor, Lines.data(), Lines.size());
    if (Written != ssize_t(Lines.size()))
      warnOrFail("cannot write the log " + Path + ": " + std::strerror(Written < 0 ? errno : ENOSPC),
                 "continuing without it", "MLGO_INLINER_STRICT");
    if (Descriptor >= 0)
      close(Descriptor);
  }

  // To be called for each decision, in order.
  void add(const llvm::CallBase &CB, bool Decision, bool Default, bool IsReplayed) {
    finishLine();
    const llvm::StringRef Caller = symbolName(*CB.getCaller()), Callee = symbolName(*CB.getCalledFunction());
    const int64_t Ordinal = NumDecisions[Caller.str() + '\0' + Callee.str()]++;
    if (Decision == Default)
      return;
    Difference = llvm::json::Object{{"module", llvm::json::fixUTF8(ModuleName)},
                                    {"caller", llvm::json::fixUTF8(Caller)},
                                    {"callee", llvm::json::fixUTF8(Callee)},
                                    {"ordinal", Ordinal},
                                    {"decision", Decision ? "inline" : "do not inline"},
                                    {"inlined", false},
                                    {"replayed", IsReplayed}};
    if (const llvm::DebugLoc &Location = CB.getDebugLoc())
      (*Difference)["location"] = llvm::json::fixUTF8(Location->getFilename()) + ":" +
                                  std::to_string(Location.getLine()) + ":" + std::to_string(Location.getCol());
  }

  // Records that the call of the last decision was inlined. The inliner reports this before it asks for more advice.
  void recordInlined() {
    if (Difference)
      (*Difference)["inlined"] = true;
  }

private:
  void finishLine() {
    if (!Difference)
      return;
    llvm::raw_string_ostream Stream(Lines);
    Stream << llvm::json::Value(std::move(*Difference)) << '\n';
    Difference.reset();
  }

  const std::string Path, ModuleName;
  llvm::StringMap<int64_t> NumDecisions; // by caller and callee
  std::optional<llvm::json::Object> Difference; // the last decision, if it differs
  std::string Lines;
};

} // namespace compiler_opt

#endif // COMPILER_OPT_NATIVE_DIFFERENCE_LOG_H_
