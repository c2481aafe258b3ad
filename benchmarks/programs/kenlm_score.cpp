// Reads the model of a generated text from ARPA's format into each kind of table, writes and maps some as binary files,
// and scores other texts, with a state and without.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

struct StringPiece {
  const char *text;
  std::size_t length;
};

namespace util {
char *ToString(float value, char *to);
}

namespace lm {
struct FullScoreReturn {
  float prob;
  unsigned char length;
  bool independent_left;
  std::uint64_t extend_left;
  float rest;
};

namespace base {
class Vocabulary {
 public:
  virtual ~Vocabulary();
  virtual unsigned Index(const StringPiece &word) const = 0;
};

class Model {
 public:
  virtual ~Model();
  virtual float BaseScore(const void *in, unsigned word, void *out) const = 0;
  virtual FullScoreReturn BaseFullScore(const void *in, unsigned word, void *out) const = 0;
  virtual FullScoreReturn BaseFullScoreForgotState(const unsigned *context, const unsigned *end, unsigned word,
                                                   void *out) const = 0;

  std::size_t state_size;
  const void *begin_sentence, *no_context;
  const Vocabulary *vocabulary;
  unsigned char order;
};
}  // namespace base

namespace ngram {
enum ModelType { kProbing, kRestProbing, kTrie, kQuantTrie, kArrayTrie, kQuantArrayTrie };

struct Config {
  Config();

  bool show_progress;
  std::ostream *messages;
  void *enumerate_vocabulary;
  int unknown_missing, marker_missing, positive_probability;
  float unknown_probability, probing_multiplier;
  std::size_t building_memory;
  std::string temporary_prefix;
  int complain;
  const char *write_to;
  int write_method;
  bool with_vocabulary;
  int rest;
  std::vector<std::string> rest_files;
  std::uint8_t probability_bits, backoff_bits, pointer_bits;
  int load_method;
};

base::Model *LoadVirtual(const char *file, const Config &config, ModelType type_of_text);
}  // namespace ngram
}  // namespace lm

enum { kWords = 500, kOrder = 4, kSentences = 400, kBegin = 1, kEnd = 2 };
using NGram = std::array<int, kOrder>;

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static std::string names[kWords] = {"<unk>", "<s>", "</s>"};

static void name_words() {
  static const char *const kSyllables[] = {"ka", "to", "mi", "ren", "sol", "ve", "qui", "lan"};
  for (int i = kEnd + 1; i < kWords; ++i)
    for (const int part : {i / 64, i / 8, i}) names[i] += kSyllables[part % 8];
}

// Some words follow one another often.
static int next_word(int word) {
  return kEnd + 1 + (draw(4) ? word * 7 + draw(3) * draw(6) : draw(kWords)) % (kWords - kEnd - 1);
}

static void write_text_model(const std::string &path) {
  std::vector<NGram> found[kOrder];
  for (int i = 0; i < kWords; ++i) found[0].push_back({i});
  for (int i = 0; i < kSentences; ++i) {
    int words[32] = {kBegin, next_word(i)}, count = 2;
    while (count < 5 + i % 20) words[count] = next_word(words[count - 1]), ++count;
    words[count++] = kEnd;
    for (int order = 2; order <= kOrder; ++order)
      for (int j = 0; j + order <= count; ++j) {
        NGram ngram{};
        std::copy(words + j, words + j + order, ngram.begin());
        found[order - 1].push_back(ngram);
      }
  }
  std::ofstream file(path);
  file << "\\data\\\n";
  for (int order = 1; order <= kOrder; ++order) {
    std::vector<NGram> &ngrams = found[order - 1];
    std::sort(ngrams.begin(), ngrams.end());
    ngrams.erase(std::unique(ngrams.begin(), ngrams.end()), ngrams.end());
    file << "ngram " << order << "=" << ngrams.size() << "\n";
  }
  for (int order = 1; order <= kOrder; ++order) {
    file << "\n\\" << order << "-grams:\n";
    for (const NGram &ngram : found[order - 1]) {
      file << "-" << draw(4) << "." << 1000 + draw(9000);
      for (int i = 0; i < order; ++i) file << (i ? " " : "\t") << names[ngram[i]];
      if (order < kOrder && ngram[order - 1] != kEnd) file << "\t-0." << 10000 + draw(90000);
      file << "\n";
    }
  }
  file << "\n\\end\\\n";
}

static void score(const lm::base::Model &model) {
  enum { kMaxContext = 13 };
  static const std::string unknown = "unknown";
  alignas(8) char states[2][256] = {};
  std::uint32_t sum = 0;
  float total = 0;
  int lengths[kOrder + 1] = {}, differences = 0;
  char text[32];
  for (int i = 0; i < kSentences; ++i) {
    std::memcpy(states[0], i % 8 ? model.begin_sentence : model.no_context, model.state_size);
    unsigned reversed[kMaxContext];  // The words so far, the last one first, at the end.
    int length = 0;
    if (i % 8) reversed[kMaxContext - ++length] = model.vocabulary->Index({"<s>", 3});
    int word = next_word(i);
    for (int j = 0; j < kMaxContext - 1; ++j) {
      const std::string &name = j == kMaxContext - 2 ? names[kEnd] : draw(50) ? names[word] : unknown;
      const unsigned index = model.vocabulary->Index({name.data(), name.size()});
      const lm::FullScoreReturn result = model.BaseFullScore(states[j % 2], index, states[(j + 1) % 2]);
      total += result.prob;
      ++lengths[result.length];
      if (i % 4 == 0) {
        alignas(8) char unused[256];
        const unsigned *const end = reversed + kMaxContext;
        const float prob = model.BaseFullScoreForgotState(end - length, end, index, unused).prob;
        differences += std::abs(prob - result.prob) > 1e-4f;
      }
      reversed[kMaxContext - ++length] = index;
      for (const char *c = text, *end = util::ToString(result.prob, text); c < end; ++c) sum = sum * 31 + *c;
      word = next_word(word);
    }
  }
  std::printf("%.3f %u %d:", total, sum, differences);
  for (const int count : lengths) std::printf(" %d", count);
  std::printf("\n");
}

int main(int, char **arguments) {
  const std::string folder = arguments[1], text = folder + "/text.arpa", binary = folder + "/binary";
  name_words();
  write_text_model(text);
  for (int number = 0; number < 6; ++number) {
    const auto type = static_cast<lm::ngram::ModelType>(number);
    lm::ngram::Config config;
    config.show_progress = false;
    config.messages = nullptr;
    config.building_memory = 1 << 20;
    config.temporary_prefix = folder + "/temporary";
    config.write_to = type % 2 ? nullptr : binary.c_str();
    const lm::base::Model *model = lm::ngram::LoadVirtual(text.c_str(), config, type);
    score(*model);
    delete model;
    if (type % 2) continue;
    config.write_to = nullptr;
    model = lm::ngram::LoadVirtual(binary.c_str(), config, type);
    score(*model);
    delete model;
  }
  return 0;
}
