// Writes a training log with LLVM's own Logger to standard output: every type, odd names, contexts that come again,
// outcomes for some.

#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Analysis/Utils/TrainingLogger.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

using llvm::TensorSpec;

template <typename T> static void log(llvm::Logger &Log, size_t Feature, int Number) {
  const T Values[] = {T(Number), T(Number + 1)};
  Log.logTensorValue(Feature, reinterpret_cast<const char *>(Values));
}

static void observe(llvm::Logger &Log, int Number) {
  Log.startObservation();
  log<float>(Log, 0, Number);
  log<double>(Log, 1, Number);
  log<int8_t>(Log, 2, Number);
  log<uint8_t>(Log, 3, Number);
  log<int16_t>(Log, 4, Number);
  log<uint16_t>(Log, 5, Number);
  log<int32_t>(Log, 6, Number);
  log<uint32_t>(Log, 7, Number);
  log<int64_t>(Log, 8, Number);
  log<uint64_t>(Log, 9, Number);
  Log.endObservation();
}

int main(int Argc, char **) {
  const bool IncludeReward = Argc < 2;
  const std::vector<TensorSpec> Features = {
      TensorSpec::createSpec<float>("float", {2}),
      TensorSpec::createSpec<double>("double", {1, 2}, 3),
      TensorSpec::createSpec<int8_t>("int8", {2}),
      TensorSpec::createSpec<uint8_t>("uint8", {2}),
      TensorSpec::createSpec<int16_t>("int16", {2}),
      TensorSpec::createSpec<uint16_t>("uint16", {2}),
      TensorSpec::createSpec<int32_t>("int32", {2, 1}),
      TensorSpec::createSpec<uint32_t>("uint32", {2}),
      TensorSpec::createSpec<int64_t>("int64", {2}),
      TensorSpec::createSpec<uint64_t>("a \"name\"\b\f\n\x01\x7f\\/\xc3\xa9", {2}),
  };
  std::optional<TensorSpec> Advice;
  if (IncludeReward)
    Advice = TensorSpec::createSpec<int64_t>("advice", {1});
  llvm::Logger Log(std::make_unique<llvm::raw_fd_ostream>(1, false), Features,
                   TensorSpec::createSpec<float>("reward", {1}), IncludeReward, Advice);
  Log.switchContext("one \"\\\b\f\t\n\r\x1f\x7f/\xc3\xa9");
  for (int Number = 0; Number < 12; ++Number) {
    observe(Log, Number);
    if (IncludeReward)
      Log.logReward<float>(float(Number) / 2);
  }
  Log.switchContext("two");
  observe(Log, 50);
  Log.switchContext("");
  Log.switchContext("two");
  observe(Log, 51);
  if (IncludeReward)
    Log.logReward<float>(-1);
}
