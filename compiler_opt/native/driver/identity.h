// Identifies files by their content.

#ifndef COMPILER_OPT_NATIVE_DRIVER_IDENTITY_H_
#define COMPILER_OPT_NATIVE_DRIVER_IDENTITY_H_

#include "children.h"
#include "elf_file.h"
#include "files.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace mlgo {

// FNV-1a over the content as little-endian words of eight bytes, the last padded with zeros, and its length in bytes.
// Protects against mistakes, not against attacks. `deploy/driver.py` computes the same.
inline uint64_t fingerprint(const std::string &content) {
  uint64_t hash = 0xCBF29CE484222325, word = 0;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001B3; };
  for (size_t start = 0; start < content.size(); start += 8, word = 0) {
    for (size_t i = 0; i < 8 && start + i < content.size(); ++i)
      word |= static_cast<uint64_t>(static_cast<unsigned char>(content[start + i])) << (8 * i);
    add(word);
  }
  add(content.size());
  return hash;
}

inline std::string hexadecimal(uint64_t value) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4)
    text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

// Identifies a small file by its whole content.
inline std::string identity_by_content(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return std::strerror(errno);
  const std::string content = read_file(path);
  return std::to_string(content.size()) + " bytes, content " + hexadecimal(fingerprint(content));
}

// Identifies a large file without reading all of it: by its size, modification time and build ID.
inline std::string identity(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return std::strerror(errno);
  const std::string nanoseconds = std::to_string(1'000'000'000 + status.st_mtim.tv_nsec).substr(1);
  const std::string build_id = ElfFile(path).build_id();
  return std::to_string(status.st_size) + " bytes of " + std::to_string(status.st_mtim.tv_sec) + "." + nanoseconds +
         (build_id.empty() ? "" : ", build " + build_id);
}

// The shared libraries that a program loads, as ldd lists them.
inline std::vector<std::string> libraries_of(const std::string &program, Children *children) {
  setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
  const std::string list = children->run({program, "--version"}, true).out;
  unsetenv("LD_TRACE_LOADED_OBJECTS");
  std::vector<std::string> paths;
  static constexpr std::string_view kArrow = " => ";
  for (size_t start = 0; start < list.size();) {
    const size_t end = std::min(list.find('\n', start), list.size());
    const std::string line = list.substr(start, end - start);
    const size_t arrow = line.find(kArrow), address = line.rfind(" (0x");
    if (arrow != std::string::npos && address != std::string::npos && address > arrow)
      paths.push_back(line.substr(arrow + kArrow.size(), address - arrow - kArrow.size()));
    start = end + 1;
  }
  return paths;
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_IDENTITY_H_
