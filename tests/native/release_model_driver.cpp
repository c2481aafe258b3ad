// Makes decisions by a generated class, as LLVM does: driver FEATURES DECISIONS NAME...
//
// FEATURES has a row for each decision, with an int64 for each NAME; the driver writes an int64 for each decision to
// DECISIONS.

#include "InlinerSizeModel.h"

#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/IR/LLVMContext.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int argc, char **argv) {
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  std::vector<llvm::TensorSpec> specs;
  for (int i = 3; i < argc; ++i)
    specs.push_back(llvm::TensorSpec::createSpec<int64_t>(argv[i], {1}));
  if (!llvm::isEmbeddedModelEvaluatorValid<llvm::InlinerSizeModel>())
    return 1;
  llvm::LLVMContext context;
  llvm::ReleaseModeModelRunner<llvm::InlinerSizeModel> runner(context, specs, "inlining_decision");
  std::ofstream decisions(argv[2], std::ios::binary);
  const size_t row_bytes = specs.size() * sizeof(int64_t);
  for (size_t row = 0; row < raw.size() / row_bytes; ++row) {
    for (size_t i = 0; i < specs.size(); ++i)
      std::memcpy(runner.getTensor<int64_t>(i), raw.data() + row * row_bytes + i * sizeof(int64_t), sizeof(int64_t));
    const int64_t decision = runner.evaluate<int64_t>();
    decisions.write(reinterpret_cast<const char *>(&decision), sizeof(decision));
  }
  llvm::InlinerSizeModel model;
  const bool unknown = model.LookupArgIndex("feed_number_of_moons") == -1 && model.LookupArgIndex("") == -1 &&
                       model.LookupArgIndex(argv[3]) == -1 && model.LookupResultIndex("fetch_") == -1 &&
                       model.arg_data(-1) == nullptr && model.arg_data(1000) == nullptr &&
                       model.result_data(1) == nullptr;
  return unknown && reinterpret_cast<uintptr_t>(model.arg_data(1)) % 64 == 0 ? 0 : 1;
}
