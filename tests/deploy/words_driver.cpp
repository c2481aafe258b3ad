// Prints the words of the response files that are its arguments: for each file, a line of words in hexadecimal.

#include "driver/words.h"

#include <cstdio>

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    if (const auto text = mlgo::decoded(mlgo::read_file(argv[i]))) {
      for (const std::string &word : mlgo::split_words(*text)) {
        for (const char byte : word)
          std::printf("%02x", static_cast<unsigned char>(byte));
        std::putchar(' ');
      }
    }
    std::putchar('\n');
  }
}
