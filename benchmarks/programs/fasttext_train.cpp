// Trains classifiers and vectors of words on a generated text, from models in the format of the library's files, tests
// the classifiers, also after quantization, and looks for similar words.
// (A model that starts without a file has a table of 30 million numbers, and it takes longest to fill that.)
#include <alloca.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fasttext {
struct Args {
  Args();

  void *manual[7];
  std::string input, output;
  double rate;
  int rate_update, dim, window, epochs, min_count, min_count_label, negatives, word_ngrams, loss, model, bucket, min_n;
  int max_n, threads;
  double t;
  std::string label;
  int verbose;
  std::string vectors;
  bool save_output;
  int seed;
  bool quantize_output, retrain, quantize_norm;
  std::size_t cutoff, part_dim;
  std::string autotune_file, autotune_metric;
  int autotune_predictions, autotune_duration;
  std::string autotune_size;
};

struct FastText {
  using Callback = std::function<void(float, float, double, double, std::int64_t)>;
  using Scored = std::vector<std::pair<float, std::string>>;
  FastText();
  ~FastText() = delete;  // It is inline in the library: ours stay.
  void loadModel(const std::string &file);
  void saveModel(const std::string &file);
  void startThreads(const Callback &callback);
  void quantize(const Args &args, const Callback &callback);
  std::tuple<std::int64_t, double, double> test(std::istream &text, std::int32_t count, float threshold);
  bool predictLine(std::istream &text, Scored &labels, std::int32_t count, float threshold) const;
  Scored getNN(const std::string &word, std::int32_t count);
  Scored getAnalogies(std::int32_t count, const std::string &a, const std::string &b, const std::string &c);

  Args *args;
  void *members[32];
};
}  // namespace fasttext

using fasttext::FastText;

enum { kWords = 300, kTopics = 6, kLines = 320, kBucket = 1000 };
enum Loss { kHierarchical = 1, kSoftmax = 3, kOneVsAll };
enum Model { kCbow = 1, kSkipgram, kSupervised };

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static std::string folder, names[1 + kWords + kTopics];
static std::int64_t counts[1 + kWords + kTopics], tokens;

// Each line is of a topic, which prefers words.
static void write_text() {
  static const char *const kSyllables[] = {"ka", "to", "mi", "ren", "sol", "ve", "\303\261e", "lan"};
  std::ofstream text(folder + "/text");
  names[0] = "</s>";
  for (int i = 0; i < kWords; ++i)
    for (const int part : {i / 64, i / 8, i}) names[1 + i] += kSyllables[part % 8];
  for (int i = 0; i < kTopics; ++i) names[1 + kWords + i] = "__label__" + std::to_string(i);
  const auto write = [&](int token, const char *end) {
    text << names[token] << end;
    ++counts[token];
    ++tokens;
  };
  for (int i = 0; i < kLines; ++i) {
    const int topic = draw(kTopics);
    write(1 + kWords + topic, " ");
    if (draw(4) == 0) write(1 + kWords + (topic + 1) % kTopics, " ");
    for (int left = 6 + draw(10); left > 0; --left)
      write(1 + (draw(3) ? draw(kWords / kTopics) * kTopics + topic : draw(kWords)), " ");
    text << "\n";
    ++counts[0];
    ++tokens;
  }
}

static FastText &train(Model model, Loss loss, int dim, int epochs, double rate, int ngrams, int min_n, int max_n) {
  std::ofstream file(folder + "/model", std::ios::binary);
  const auto write = [&file](auto value) { file.write(reinterpret_cast<const char *>(&value), sizeof value); };
  const int outputs = model == kSupervised ? kTopics : 1 + kWords;
  for (const int value : {793712314, 12, dim, 3, epochs, 1, 5, ngrams}) write(value);
  for (const int value : {int{loss}, int{model}, int{kBucket}, min_n, max_n, 100}) write(value);
  write(0.05);
  for (const int value : {1 + kWords + kTopics, 1 + kWords, int{kTopics}}) write(value);
  write(tokens);
  write(std::int64_t{-1});
  for (int i = 0; i < 1 + kWords + kTopics; ++i) {
    file.write(names[i].c_str(), names[i].size() + 1);
    write(counts[i]);
    write(static_cast<char>(i > kWords));
  }
  write(false);
  write(std::int64_t{1 + kWords + kBucket});
  write(std::int64_t{dim});
  for (int i = 0; i < (1 + kWords + kBucket) * dim; ++i) write((static_cast<int>(draw(2001)) - 1000) * (1e-3f / dim));
  write(false);
  write(std::int64_t{outputs});
  write(std::int64_t{dim});
  for (int i = 0; i < outputs * dim; ++i) write(0.0f);
  file.close();
  FastText &result = *new FastText;
  result.loadModel(folder + "/model");
  result.args->input = folder + "/text";
  result.args->rate = rate;
  result.args->threads = 1;
  result.args->verbose = 0;
  result.startThreads({});
  return result;
}

static void print(const char *name, const FastText::Scored &scored) {
  std::printf("%s", name);
  for (const auto &[score, text] : scored) std::printf(" %s %.4f", text.c_str(), score);
  std::printf("\n");
}

static void test(FastText &model) {
  std::ifstream text(folder + "/text");
  for (int count = 1; count <= 2; ++count) {
    const auto [lines, precision, recall] = model.test(text, count, 0.1f);
    std::printf("%d %.4f %.4f\n", static_cast<int>(lines), precision, recall);
  }
  FastText::Scored labels;
  text.clear();
  text.seekg(0);
  for (int i = 0; i < 5; ++i) {
    model.predictLine(text, labels, 3, 0.0f);
    print("labels", labels);
  }
}

int main(int, char **arguments) {
  // What libc's functions on memory execute depends on where in a page the stack is, which the environment shifts.
  static void *volatile unused = alloca(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) % 4096);
  static_cast<void>(unused);
  folder = arguments[1];
  write_text();
  for (Model model : {kSkipgram, kCbow}) {
    FastText &vectors = train(model, kHierarchical, 16, 1, 0.2, 1, 3, 5);
    for (int i = 1; i < kWords; i += 30) print(names[i].c_str(), vectors.getNN(names[i] + (i % 2 ? "" : "ka"), 3));
    print("analogies", vectors.getAnalogies(3, names[1], names[7], names[8]));
  }
  test(train(kSupervised, kOneVsAll, 8, 5, 1.0, 1, 2, 4));
  test(train(kSupervised, kHierarchical, 8, 5, 1.0, 2, 0, 0));
  FastText &classifier = train(kSupervised, kSoftmax, 8, 5, 1.0, 2, 0, 0);
  test(classifier);
  fasttext::Args &args = *new fasttext::Args;
  args.input = folder + "/text";
  args.epochs = 1;
  args.threads = 1;
  args.verbose = 0;
  args.retrain = true;
  args.part_dim = 4;
  args.cutoff = 264;
  classifier.quantize(args, {});
  classifier.saveModel(folder + "/model");
  FastText &again = *new FastText;
  again.loadModel(folder + "/model");
  test(again);
  return 0;
}
