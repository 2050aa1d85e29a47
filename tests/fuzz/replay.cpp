// Runs a fuzz target over its seeds, without libFuzzer: for any compiler and sanitiser.
//
//   fuzz_NAME corpus/NAME.txt
//
// A seed is a line: printable ASCII stands for itself, \r \n \t \\ and \xNN for the rest. After each seed come all its
// beginnings, and itself with each byte changed: what a parser is most likely to trip over.
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "check.hpp"

namespace {

int digit(char c) {
  return c <= '9' ? c - '0' : c - 'a' + 10;
}

std::string unescaped(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out.push_back(line[i]);
      continue;
    }
    const char kind = line.at(++i);
    if (kind == 'x') {
      out.push_back(static_cast<char>(digit(line.at(i + 1)) * 16 + digit(line.at(i + 2))));
      i += 2;
    } else {
      out.push_back(kind == 'r' ? '\r' : kind == 'n' ? '\n' : kind == 't' ? '\t' : kind);
    }
  }
  return out;
}

// A copy of its own size on the heap: a read beyond its end is seen by the sanitiser.
void run(const std::string& input) {
  const std::string copy(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(copy.data()), copy.size());
}

}  // namespace

int main(int count, char** arguments) {
  constexpr std::size_t kVariedBytesMax = 400;  // longer seeds are run as they are
  if (count != 2) return std::fprintf(stderr, "usage: %s SEEDS\n", arguments[0]), 2;
  std::ifstream seeds(arguments[1]);
  int inputs = 0;
  for (std::string line; std::getline(seeds, line); ++inputs) {
    std::string seed = unescaped(line);
    run(seed);
    if (seed.size() > kVariedBytesMax) continue;
    for (std::size_t i = 0; i < seed.size(); ++i) {
      run(seed.substr(0, i));
      for (const char other : {'\0', '"', '9', '\xff', static_cast<char>(seed[i] ^ 0x20)}) {
        const char own = std::exchange(seed[i], other);
        run(seed);
        seed[i] = own;
      }
    }
  }
  std::printf("%d seeds of %s\n", inputs, arguments[1]);
  return inputs > 0 ? 0 : 1;
}
