// The size of an object or program as `llvm-size` counts its text: allocated sections that nothing writes to.

#ifndef COMPILER_OPT_NATIVE_DRIVER_TEXT_BYTES_H_
#define COMPILER_OPT_NATIVE_DRIVER_TEXT_BYTES_H_

#include <cstdint>
#include <elf.h>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace mlgo {

// Bytes of text of an ELF file of either width and byte order; nothing when it is none, or is damaged.
class TextBytes {
 public:
  static std::optional<uint64_t> of(const std::string &path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
      return std::nullopt;
    const std::optional<uint64_t> result = TextBytes(file).count();
    close(file);
    return result;
  }

 private:
  explicit TextBytes(int file) : file_(file) {}

  std::optional<uint64_t> count() {
    unsigned char identity[EI_NIDENT];
    if (!read_at(0, identity, sizeof identity) || identity[EI_MAG0] != ELFMAG0 || identity[EI_MAG1] != ELFMAG1 ||
        identity[EI_MAG2] != ELFMAG2 || identity[EI_MAG3] != ELFMAG3)
      return std::nullopt;
    const uint16_t probe = 1;
    const bool host_is_little = *reinterpret_cast<const unsigned char *>(&probe) == 1;
    swap_ = (identity[EI_DATA] == ELFDATA2LSB) != host_is_little;
    return identity[EI_CLASS] == ELFCLASS64 ? count_sections<Elf64_Ehdr, Elf64_Shdr>()
                                            : count_sections<Elf32_Ehdr, Elf32_Shdr>();
  }

  template <typename Header, typename Section> std::optional<uint64_t> count_sections() {
    Header header;
    Section first;
    if (!read_at(0, &header, sizeof header) || host(header.e_shentsize) != sizeof(Section) ||
        !read_at(host(header.e_shoff), &first, sizeof first))
      return std::nullopt;
    // More sections than fit into the header's field are counted in the first of them.
    const uint64_t number = header.e_shnum != 0 ? host(header.e_shnum) : host(first.sh_size);
    struct stat status;
    if (fstat(file_, &status) != 0 || number > static_cast<uint64_t>(status.st_size) / sizeof(Section))
      return std::nullopt;
    std::vector<Section> sections(number);
    if (!read_at(host(header.e_shoff), sections.data(), number * sizeof(Section)))
      return std::nullopt;
    uint64_t bytes = 0;
    for (const Section &section : sections)
      if ((host(section.sh_flags) & SHF_ALLOC) != 0 && (host(section.sh_flags) & SHF_WRITE) == 0 &&
          host(section.sh_type) != SHT_NOBITS)
        bytes += host(section.sh_size);
    return bytes;
  }

  template <typename T> T host(T value) const {
    static_assert(std::is_unsigned_v<T>);
    if (!swap_)
      return value;
    T swapped = 0;
    for (size_t byte = 0; byte < sizeof(T); ++byte)
      swapped = static_cast<T>(swapped << 8) | static_cast<T>((value >> (8 * byte)) & 0xFF);
    return swapped;
  }

  bool read_at(uint64_t offset, void *target, size_t size) const {
    return pread(file_, target, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }

  const int file_;
  bool swap_ = false;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_TEXT_BYTES_H_
