// Makes decisions by a generated class, as LLVM does: driver FEATURES DECISIONS SELECTOR ADVICE SPEC...
//
// A SPEC is NAME:f:SHAPE (float) or NAME:i:SHAPE (int64), such as mask:i:1,33. FEATURES has a row for each decision, with
// these tensors in this order; the driver writes the advice of each decision to DECISIONS. SELECTOR is the name of the
// policy, or empty. MODEL is the name of the class, MODEL_HEADER that of its header, ADVICE_TYPE the type of its advice.

#include MODEL_HEADER

#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/IR/LLVMContext.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

llvm::TensorSpec parse_spec(const std::string &text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::vector<int64_t> shape;
  for (size_t begin = colon + 3; begin != std::string::npos + 1; begin = text.find(',', begin) + 1)
    shape.push_back(std::strtoll(text.c_str() + begin, nullptr, 10));
  return text[colon + 1] == 'f' ? llvm::TensorSpec::createSpec<float>(name, shape)
                                : llvm::TensorSpec::createSpec<int64_t>(name, shape);
}

}  // namespace

int main(int argc, char **argv) {
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  std::vector<llvm::TensorSpec> specs;
  size_t row_bytes = 0;
  for (int i = 5; i < argc; ++i) {
    specs.push_back(parse_spec(argv[i]));
    row_bytes += specs.back().getTotalTensorBufferSize();
  }
  if (!llvm::isEmbeddedModelEvaluatorValid<llvm::MODEL>())
    return 1;
  llvm::LLVMContext context;
  const auto options = llvm::EmbeddedModelRunnerOptions().setModelSelector(argv[3]);
  llvm::ReleaseModeModelRunner<llvm::MODEL> runner(context, specs, argv[4], options);
  std::ofstream decisions(argv[2], std::ios::binary);
  const char *next = raw.data();
  for (size_t row = 0; row < raw.size() / row_bytes; ++row) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const size_t size = specs[i].getTotalTensorBufferSize();
      std::memcpy(runner.getTensorUntyped(i), next, size);
      next += size;
    }
    const ADVICE_TYPE decision = runner.evaluate<ADVICE_TYPE>();
    decisions.write(reinterpret_cast<const char *>(&decision), sizeof(decision));
  }
  return 0;
}
