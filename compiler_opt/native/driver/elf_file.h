// Reads objects, programs and libraries, as far as mlgo-clang needs it.

#ifndef COMPILER_OPT_NATIVE_DRIVER_ELF_FILE_H_
#define COMPILER_OPT_NATIVE_DRIVER_ELF_FILE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace mlgo {

// An ELF file of either width and byte order. If the file is damaged or has another format, all results are empty.
class ElfFile {
 public:
  explicit ElfFile(const std::string &path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!read_sections())
      sections_.clear();
  }
  ~ElfFile() {
    if (file_ >= 0)
      close(file_);
  }
  ElfFile(const ElfFile &) = delete;
  ElfFile &operator=(const ElfFile &) = delete;

  // The size of its text as `llvm-size` counts it: allocated sections that are not writable.
  std::optional<uint64_t> text_bytes() const {
    return bytes_of([](const Section &section) { return (section.flags & SHF_WRITE) == 0; });
  }
  // The size of its machine code.
  std::optional<uint64_t> code_bytes() const {
    return bytes_of([](const Section &section) { return (section.flags & SHF_EXECINSTR) != 0; });
  }

  // Sorted names of the defined symbols that do not depend on inlining decisions. Weak symbols are excluded: an inline
  // function or template (linkonce_odr) disappears when all of its calls are inlined. A strong symbol of an object
  // remains, since other objects may refer to it. In a program only dynamic symbols count, since LTO and the linker's
  // garbage collection may remove any other.
  std::optional<std::vector<std::string>> strong_symbols() const {
    if (sections_.empty())
      return std::nullopt;
    std::vector<std::string> names;
    for (const Section &section : sections_)
      if (section.type == (is_object_ ? SHT_SYMTAB : SHT_DYNSYM) &&
          !(is_64_ ? add_strong<Elf64_Sym>(section, &names) : add_strong<Elf32_Sym>(section, &names)))
        return std::nullopt;
    std::sort(names.begin(), names.end());
    return names;
  }

  // The build ID that the linker computed from the content, in hexadecimal; empty if there is none.
  std::string build_id() const {
    for (const Section &section : sections_) {
      Elf64_Nhdr note;  // The same in both classes.
      char name[4];
      if (section.type != SHT_NOTE || !read_at(section.offset, &note, sizeof note) ||
          host(note.n_type) != NT_GNU_BUILD_ID || host(note.n_namesz) != sizeof name ||
          !read_at(section.offset + sizeof note, name, sizeof name) || std::memcmp(name, "GNU", sizeof name) != 0)
        continue;
      std::string id(std::min<uint64_t>(host(note.n_descsz), 64), '\0'), text;
      if (!read_at(section.offset + sizeof note + sizeof name, id.data(), id.size()))
        continue;
      for (const char byte : id)
        for (const int shift : {4, 0})
          text += "0123456789abcdef"[(byte >> shift) & 15];
      return text;
    }
    return "";
  }

 private:
  struct Section {
    uint32_t type, link;
    uint64_t flags, offset, size;
  };

  // The bytes in the file of allocated sections of a kind.
  template <typename Predicate> std::optional<uint64_t> bytes_of(Predicate is_of_kind) const {
    if (sections_.empty())
      return std::nullopt;
    uint64_t bytes = 0;
    for (const Section &section : sections_)
      if ((section.flags & SHF_ALLOC) != 0 && section.type != SHT_NOBITS && is_of_kind(section))
        bytes += section.size;
    return bytes;
  }

  bool read_sections() {
    unsigned char identity[EI_NIDENT];
    if (file_ < 0 || !read_at(0, identity, sizeof identity) || std::memcmp(identity, ELFMAG, SELFMAG) != 0)
      return false;
    const uint16_t probe = 1;
    const bool host_is_little = *reinterpret_cast<const unsigned char *>(&probe) == 1;
    swap_ = (identity[EI_DATA] == ELFDATA2LSB) != host_is_little;
    is_64_ = identity[EI_CLASS] == ELFCLASS64;
    return is_64_ ? read_sections_of<Elf64_Ehdr, Elf64_Shdr>() : read_sections_of<Elf32_Ehdr, Elf32_Shdr>();
  }

  template <typename Header, typename RawSection> bool read_sections_of() {
    Header header;
    RawSection first;
    if (!read_at(0, &header, sizeof header) || host(header.e_shentsize) != sizeof(RawSection) ||
        !read_at(host(header.e_shoff), &first, sizeof first))
      return false;
    is_object_ = host(header.e_type) == ET_REL;
    // If the number of sections exceeds the header's field, the first section header holds it.
    const uint64_t number = header.e_shnum != 0 ? host(header.e_shnum) : host(first.sh_size);
    std::vector<RawSection> sections;
    if (!read_all(host(header.e_shoff), number, &sections))
      return false;
    for (const RawSection &section : sections)
      sections_.push_back({host(section.sh_type), host(section.sh_link), host(section.sh_flags),
                           host(section.sh_offset), host(section.sh_size)});
    return true;
  }

  template <typename Symbol> bool add_strong(const Section &section, std::vector<std::string> *names) const {
    std::vector<Symbol> symbols;
    std::vector<char> strings;
    if (section.link >= sections_.size() ||
        !read_all(section.offset, section.size / sizeof(Symbol), &symbols) ||
        !read_all(sections_[section.link].offset, sections_[section.link].size, &strings) || strings.empty() ||
        strings.back() != '\0')
      return false;
    for (const Symbol &symbol : symbols) {
      if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || host(symbol.st_shndx) == SHN_UNDEF)
        continue;
      if (host(symbol.st_name) >= strings.size())
        return false;
      names->emplace_back(&strings[host(symbol.st_name)]);
    }
    return true;
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

  // Returns false if the range exceeds the file, which is then damaged.
  template <typename T> bool read_all(uint64_t offset, uint64_t number, std::vector<T> *target) const {
    struct stat status;
    if (fstat(file_, &status) != 0 || number > static_cast<uint64_t>(status.st_size) / sizeof(T))
      return false;
    target->resize(number);
    return read_at(offset, target->data(), number * sizeof(T));
  }

  bool read_at(uint64_t offset, void *target, size_t size) const {
    return pread(file_, target, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }

  const int file_;
  bool swap_ = false, is_64_ = false, is_object_ = false;
  std::vector<Section> sections_;
};

}  // namespace mlgo

#endif  // COMPILER_OPT_NATIVE_DRIVER_ELF_FILE_H_
