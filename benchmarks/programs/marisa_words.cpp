// Builds tries of generated words, and queries them in each way.
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace marisa {
namespace grimoire::trie {
class LoudsTrie;
class State;
}  // namespace grimoire::trie

class Keyset {
 public:
  Keyset();
  ~Keyset() = delete;  // It is inline in the library: ours stay.
  void push_back(const char *text, std::size_t length, float weight);

 private:
  void *members_[16];
};

class Agent {
 public:
  Agent();
  ~Agent();
  void set_query(const char *text, std::size_t length);
  void set_query(std::size_t id);
  const char *key() const { return key_; }
  std::size_t length() const { return length_; }
  std::size_t id() const { return id_; }

 private:
  const char *query_;
  std::size_t query_length_, query_id_;
  const char *key_;
  unsigned length_, id_;
  grimoire::trie::State *state_;
};

class Trie {
 public:
  Trie();
  ~Trie();
  void build(Keyset &keyset, int flags);
  bool lookup(Agent &agent) const;
  void reverse_lookup(Agent &agent) const;
  bool common_prefix_search(Agent &agent) const;
  bool predictive_search(Agent &agent) const;
  std::size_t num_nodes() const;
  std::size_t io_size() const;

 private:
  grimoire::trie::LoudsTrie *trie_;
};
}  // namespace marisa

int main() {
  static const char *const kSyllables[] = {"ka", "to", "mi", "ren", "sol", "ve", "qui", "an", "der", "o", "str", "ing"};
  std::vector<std::string> words;
  unsigned state = 1;
  const auto draw = [&state](unsigned end) {
    state = state * 1103515245 + 12345;
    return (state >> 16) % end;
  };
  for (int i = 0; i < 30000; ++i) {
    std::string word;
    for (unsigned left = 2 + draw(5); left > 0; --left) word += kSyllables[draw(12)];
    words.push_back(word);
  }
  // Tries, and flags: text or binary tails, order by weight or label.
  for (const int flags : {3 | 0x1000 | 0x20000, 1 | 0x2000 | 0x10000}) {
    marisa::Keyset &keys = *new marisa::Keyset;
    for (const std::string &word : words) keys.push_back(word.data(), word.size(), 1 + draw(100));
    marisa::Trie trie;
    trie.build(keys, flags);
    std::size_t found = 0, prefixes = 0, longer = 0, sum = 0;
    marisa::Agent agent;
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::string text = words[i] + "xy";
      agent.set_query(text.data(), text.size() - i % 3);
      if (trie.lookup(agent)) {
        ++found;
        sum = sum * 31 + agent.id();
        agent.set_query(agent.id());
        trie.reverse_lookup(agent);
        sum = sum * 31 + agent.length() + agent.key()[agent.length() - 1];
      }
      agent.set_query(text.data(), text.size());
      while (trie.common_prefix_search(agent)) {
        ++prefixes;
        sum = sum * 31 + agent.id();
      }
      if (i % 8 != 0) continue;
      agent.set_query(text.data(), text.size() / 2);
      for (int j = 0; j < 20 && trie.predictive_search(agent); ++j) {
        ++longer;
        sum = sum * 31 + agent.length();
      }
    }
    std::printf("%zu %zu %zu %zu %zu %zu\n", trie.num_nodes(), trie.io_size(), found, prefixes, longer, sum);
  }
  return 0;
}
