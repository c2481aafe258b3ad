// Helpers for paths and files.

#ifndef COMPILER_OPT_NATIVE_DRIVER_FILES_H_
#define COMPILER_OPT_NATIVE_DRIVER_FILES_H_

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace mlgo {

inline bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

inline bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

inline std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

// A path relative to an absolute folder without symbolic links, as an absolute path without leading `..`.
inline std::string path_from(std::string folder, std::string path) {
  for (; starts_with(path, "../"); path.erase(0, 3))
    folder.erase(std::min(folder.rfind('/'), folder.size()));
  return folder + "/" + path;
}

inline bool is_regular_file(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// The whole content of an open file; empty if it cannot be read.
inline std::string content_of(int file) {
  std::string content;
  char chunk[1 << 14];
  for (ssize_t size; (size = pread(file, chunk, sizeof chunk, static_cast<off_t>(content.size()))) > 0;)
    content.append(chunk, static_cast<size_t>(size));
  return content;
}

inline std::string read_file(const std::string &path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return "";
  std::string content = content_of(file);
  close(file);
  return content;
}

// Writes the text; stops at the first error.
inline void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_FILES_H_
