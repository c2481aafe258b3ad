// Helpers for paths and files.

#ifndef COMPILER_OPT_NATIVE_DRIVER_FILES_H_
#define COMPILER_OPT_NATIVE_DRIVER_FILES_H_

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
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

// A path that is relative to a folder; the path itself if the folder is empty, or the path absolute.
inline std::string in_folder(const std::string &folder, const std::string &path) {
  return folder.empty() || starts_with(path, "/") ? path : folder + "/" + path;
}

inline bool is_regular_file(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// The content of an open file, or as much of its beginning; empty if it cannot be read.
inline std::string content_of(int file, size_t max_bytes = SIZE_MAX) {
  std::string content;
  char chunk[1 << 14];
  for (ssize_t size; (size = pread(file, chunk, std::min(sizeof chunk, max_bytes - content.size()),
                                   static_cast<off_t>(content.size()))) > 0;)
    content.append(chunk, static_cast<size_t>(size));
  return content;
}

inline std::string read_file(const std::string &path, size_t max_bytes = SIZE_MAX) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return "";
  std::string content = content_of(file, max_bytes);
  close(file);
  return content;
}

// Writes the whole text, however slowly it is read; or, if it must not wait, as much as there is room for. Returns false,
// with errno, if something is left.
inline bool write_all(int file, std::string_view text, bool waits = true) {
  while (!text.empty()) {
    pollfd event = {file, POLLOUT, 0};
    if (!waits && poll(&event, 1, 0) != 1)
      return false;
    // A pipe that is ready takes as many bytes at once.
    const ssize_t written = write(file, text.data(), waits ? text.size() : std::min<size_t>(text.size(), PIPE_BUF));
    if (written >= 0)
      text.remove_prefix(static_cast<size_t>(written));
    else if (errno == EAGAIN)
      poll(&event, 1, -1);
    else if (errno != EINTR)
      return false;
  }
  return true;
}

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_FILES_H_
