// The words of response files, configuration files and printed commands, as clang splits them.

#ifndef COMPILER_OPT_NATIVE_DRIVER_WORDS_H_
#define COMPILER_OPT_NATIVE_DRIVER_WORDS_H_

#include "files.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlgo {

// Splits a text into words. A backslash takes the next character as it is, within quotes of either kind, too. Empty
// words are dropped, as clang does in files, or kept, as in what it prints.
inline std::vector<std::string> split_words(std::string_view text, bool keep_empty = false) {
  static constexpr std::string_view kSpaces = " \t\n\r";
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  const auto end_word = [&] {
    if (in_word && (keep_empty || !word.empty()))
      words.push_back(word);
    word.clear();
    in_word = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && kSpaces.find(c) != std::string_view::npos) {
      end_word();
      continue;
    }
    in_word = true;
    if (c == '\\' && i + 1 < text.size())
      word += text[++i];
    else if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else
      word += c;
  }
  end_word();
  return words;
}

// The content of a response file in UTF-8: clang also reads files in UTF-16, and skips a byte order mark. Nullopt if it
// is no valid UTF-16.
inline std::optional<std::string> decoded(const std::string &content) {
  if (starts_with(content, "\xEF\xBB\xBF"))
    return content.substr(3);
  const bool is_big = starts_with(content, "\xFE\xFF");
  if (!is_big && !starts_with(content, "\xFF\xFE"))
    return content;
  if (content.size() % 2 != 0)
    return std::nullopt;
  const auto unit_at = [&](size_t i) -> uint32_t {
    const auto first = static_cast<unsigned char>(content[i]), second = static_cast<unsigned char>(content[i + 1]);
    return is_big ? first << 8 | second : second << 8 | first;
  };
  std::string text;
  for (size_t i = 2; i < content.size(); i += 2) {
    uint32_t point = unit_at(i);
    if (point >= 0xD800 && point < 0xE000) {
      const uint32_t low = i + 2 < content.size() ? unit_at(i + 2) : 0;
      if (point >= 0xDC00 || low < 0xDC00 || low >= 0xE000)
        return std::nullopt;
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      i += 2;
    }
    const int num_more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static constexpr unsigned char kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kFirst[num_more] | point >> (6 * num_more));
    for (int more = num_more; more-- > 0;)
      text += static_cast<char>(0x80 | (point >> (6 * more) & 0x3F));
  }
  return text;
}

// The lines of a configuration file, without comments. A backslash at the end continues a line.
inline std::vector<std::string> configuration_lines(const std::string &text) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < text.size();) {
    i = text.find_first_not_of(" \t\n\r", i);
    if (i == std::string::npos)
      break;
    if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    std::string line;
    for (; i < text.size() && text[i] != '\n'; ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        line += text[i];
        continue;
      }
      const size_t end = text.compare(i + 1, 2, "\r\n") == 0 ? i + 2 : i + 1;
      if (text[end] != '\n')
        line += text.substr(i, 2);
      i = end;
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_WORDS_H_
