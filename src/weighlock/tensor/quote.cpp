#include "weighlock/tensor/quote.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace weighlock {

std::string quote_name(std::string_view name) {
  constexpr std::size_t kShown = 128;  // longer than any parameter name of a real model
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  if (name.size() > kShown) text += "...";
  return text + "'";
}

}  // namespace weighlock
