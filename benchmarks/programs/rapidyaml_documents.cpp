// Parses generated YAML and JSON into trees and events; resolves references, merges trees, and looks up paths.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <list>
#include <string>
#include <vector>

namespace c4 {
template <class C>
struct basic_substring {
  C *text;
  std::size_t size;
};
using substr = basic_substring<char>;
using csubstr = basic_substring<const char>;
}  // namespace c4

namespace c4::yml {
struct Callbacks {
  void *members[6];
};
const Callbacks &get_callbacks();
struct ParserOptions {
  unsigned flags = 8 | 1, multiline_style = 1 << 17;  // Filters scalars, and finds flow styles of several lines.
};
struct Node {
  unsigned type;
  csubstr key_tag, key, key_anchor, value_tag, value, value_anchor;
  std::size_t parent, first_child, last_child, next, previous;
};
struct Tree {
  struct lookup_result {
    std::size_t target, others[4];
  };
  Node *nodes;
  std::size_t capacity, size, others[31];

  Tree(std::size_t nodes, std::size_t arena, const Callbacks &callbacks);
  Tree(const Tree &) = delete;
  ~Tree();
  void resolve(bool clear_anchors);
  void reorder();
  void normalize_tags_long();
  void merge_with(const Tree *source, std::size_t source_node, std::size_t node);
  std::size_t duplicate(std::size_t node, std::size_t parent, std::size_t after);
  std::size_t depth_desc(std::size_t node) const;
  lookup_result lookup_path(csubstr path, std::size_t start) const;
  std::size_t lookup_path_or_modify(csubstr value, csubstr path, std::size_t start);
};
void parse_in_place(substr text, Tree *tree, const ParserOptions &options);
void parse_json_in_place(substr text, Tree *tree, const ParserOptions &options);

template <class T>
struct Stack {
  T inlined[16] = {}, *top = inlined;
  std::size_t size = 0, capacity = 16;
  Callbacks callbacks = get_callbacks();
};
namespace extra {
struct EventHandlerInts {
  struct State {
    std::size_t position[11];
    int flags;
    std::size_t others[6];
  };
  Stack<State> states;
  State *current = states.inlined, *parent = nullptr;
  substr text;
  int *events, count = 0, previous = 0, max_count;
  substr arena;
  std::size_t arena_size = 0, document = 0, directives[20] = {};
  Stack<std::size_t[5]> tags;
};
std::size_t events_ints_to_testsuite(csubstr text, csubstr arena, const int *events, int count, substr output);
}  // namespace extra

template <class Handler>
struct ParseEngine {
  void *members[37];
  ParseEngine(Handler *handler, ParserOptions options);
  ~ParseEngine();
  void parse_in_place_ev(csubstr name, substr text);
};
static_assert(sizeof(Node) == 144 && sizeof(Tree) == 272 && sizeof(extra::EventHandlerInts) == 3336);
}  // namespace c4::yml

using namespace c4::yml;

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static std::string values(unsigned count, bool json) {
  static const char *const kPlain[] = {"plain text", "12.5e3", "true", "a-b:c", "~", "several words,\n      on two lines"};
  static const char *const kQuoted[] = {
      "\"tab\\t and \\u00e9 \\\"q\\\"\"",  "\"x\"", "'it''s single'", "\"line\\n\\\n      next\"",
      "|\n      literal\n        text\n", ">-\n      folded\n      text\n\n      more\n"};
  std::string text = json ? "{\"records\": [" : "# Records\nrecords:\n";
  for (unsigned i = 0; i < count; ++i) {
    const std::string id = std::to_string(i);
    if (json) {
      text += (i ? ",\n  " : "") + ("{\"id\": " + id) + ", \"name\": " + kQuoted[draw(2)] + ", \"list\": [" + id;
      text += ", true, null, -1.5e3, {\"deep\": [[], {}, \"\\\\\"]}], \"note\": \"" + std::string(draw(40), 'n') + "\"}";
      continue;
    }
    text += "  - id: " + id + "   # number\n    'name': " + kPlain[draw(6)] + "\n    \"note\": " + kQuoted[draw(6)];
    text += "\n    list: [a, 'b', {c: " + id + ", d: [1, 2, x y]}, !e!item " + id + "]\n";
    text += "    base: &r" + id + " {width: 1, rows: ['2', !!str 3]}\n    nested:\n      - - 1\n        - two\n";
    text += "      - ? key\n        : value\n      - deep: {\n          k: v,\n          l: \"m\" }\n";
    if (i > 0) text += "    back: *r" + std::to_string(draw(i)) + "\n";
    if (i % 4 == 3) text += "    <<: *r" + std::to_string(i - draw(3) - 1) + "\n    own: !local {x: 1}\n";
  }
  return text + (json ? "]}\n" : "end: done\n");
}

static c4::substr view(std::string &text) { return {&text[0], text.size()}; }

static void print(const char *name, const Tree &tree, std::size_t index = 0) {
  unsigned sum = 0;
  std::vector<std::size_t> left = {index};
  while (!left.empty()) {
    const Node &node = tree.nodes[left.back()];
    left.pop_back();
    sum = sum * 31 + node.type;
    for (const c4::csubstr &text : {node.key, node.value_tag, node.value})
      for (std::size_t i = 0; i < text.size; i += 7) sum = sum * 31 + text.text[i];
    for (std::size_t child = node.first_child; child + 1 != 0; child = tree.nodes[child].next) left.push_back(child);
  }
  std::printf("%s: %zu %zu %u\n", name, tree.size, tree.depth_desc(index), sum);
}

static void events(std::string text) {
  static int ints[1 << 17];
  static char arena[1 << 14], output[1 << 20];
  extra::EventHandlerInts handler;
  handler.states.size = 1;
  handler.current->flags = 1 | 2;  // At the top, and no kind is known.
  handler.text = view(text);
  handler.arena = {arena, sizeof arena};
  handler.events = ints;
  handler.max_count = sizeof ints / sizeof *ints;
  ParseEngine<extra::EventHandlerInts> engine(&handler, {});
  engine.parse_in_place_ev({"events", 6}, handler.text);
  const c4::csubstr parsed = {text.data(), text.size()}, moved = {arena, sizeof arena};
  const std::size_t size = extra::events_ints_to_testsuite(parsed, moved, ints, handler.count, {output, sizeof output});
  unsigned sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum = sum * 31 + output[i];
  std::printf("events: %d %zu %u\n", handler.count, size, sum);
}

int main() {
  const std::size_t root = 0;
  for (int round = 0; round < 12; ++round) {
    std::string json = values(120, true), yaml = values(120, false);
    std::string prefixed = "%TAG !e! tag:example.com,2000:\n---\n" + yaml;
    Tree tagged(4000, 4096, get_callbacks()), tree(4500, 4096, get_callbacks()), other(7000, 4096, get_callbacks());
    std::list<std::string> added;  // Trees keep views.
    events(yaml);
    ParserOptions options;
    parse_json_in_place(view(json), &other, options);
    parse_in_place(view(yaml), &tree, options);
    options.flags |= 2 | 4;  // Resolves tags.
    parse_in_place(view(prefixed), &tagged, options);
    tagged.normalize_tags_long();
    print("tagged", tagged);
    tree.resolve(true);
    tree.reorder();
    print("resolved", tree);
    other.merge_with(&tree, root, root);
    for (int i = 0; i < 60; ++i) {
      const std::string start = "records[" + std::to_string(draw(240)) + "]";
      for (const char *path : {".list[2]", ".note", ".list[4].deep[2]", ".nope"}) {
        const std::string whole = start + path;
        const Tree::lookup_result found = other.lookup_path({whole.data(), whole.size()}, root);
        if (found.target + 1 != 0) other.duplicate(found.target, root, other.nodes[root].last_child);
      }
      const std::string &path = added.emplace_back(start + ".added.list[2]");
      other.lookup_path_or_modify({"new", 3}, {path.data(), path.size()}, root);
    }
    print("merged", other);
  }
  return 0;
}
