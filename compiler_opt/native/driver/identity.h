// Identifies files by their content.

#ifndef COMPILER_OPT_NATIVE_DRIVER_IDENTITY_H_
#define COMPILER_OPT_NATIVE_DRIVER_IDENTITY_H_

#include "children.h"
#include "elf_file.h"
#include "files.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <endian.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace mlgo {

// FNV-1a over a file's content as little-endian words of eight bytes, the last padded with zeros, and its length in
// bytes. Protects against mistakes, not against attacks. `deploy/driver.py` computes the same. A plugin has more than a
// megabyte: it is read piece by piece, so that no memory for all of it is needed.
struct Fingerprint {
  uint64_t hash = 0xCBF29CE484222325, bytes = 0;

  // Of what can be read.
  explicit Fingerprint(const std::string &path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      unsigned char piece[1 << 16];
      while (const size_t size = read_piece(file, piece, sizeof piece))
        add(piece, size);
      close(file);
    }
    add_word(bytes);
  }

 private:
  // Reads as much as fits, except at the end of the file.
  static size_t read_piece(int file, unsigned char *piece, size_t capacity) {
    size_t filled = 0;
    for (ssize_t size; filled < capacity && (size = read(file, piece + filled, capacity - filled)) > 0;)
      filled += static_cast<size_t>(size);
    return filled;
  }

  void add(const unsigned char *piece, size_t size) {
    size_t start = 0;
    for (; start + 8 <= size; start += 8)
      add_word(word_at(piece + start));
    if (start < size) {
      unsigned char last[8] = {};
      std::memcpy(last, piece + start, size - start);
      add_word(word_at(last));
    }
    bytes += size;
  }

  static uint64_t word_at(const unsigned char *place) {
    uint64_t word;
    std::memcpy(&word, place, sizeof word);
    return le64toh(word);
  }

  void add_word(uint64_t word) { hash = (hash ^ word) * 0x100000001B3; }
};

inline std::string hexadecimal(uint64_t value) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4)
    text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

// Identifies a file by its whole content.
inline std::string identity_by_content(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return std::strerror(errno);
  const Fingerprint found(path);
  return std::to_string(found.bytes) + " bytes, content " + hexadecimal(found.hash);
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
  const std::string list = children->run({program, {program, "--version"}}, true).out;
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
