#include "weighlock/awex/scanner.hpp"

#include <cstring>
#include <limits>

namespace weighlock::awex {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Whether one of eight bytes ends a run of plain characters: '"', '\\', below 0x20, above 0x7f. The usual test for a
// zero byte, on differences; a borrow may mark a byte too many, never one too few, and the caller looks again.
bool has_special(std::uint64_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  const auto zero_in = [](std::uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  return ((bytes & kHigh) | zero_in(bytes ^ (kOnes * '"')) | zero_in(bytes ^ (kOnes * '\\')) |
          ((bytes - kOnes * 0x20) & ~bytes & kHigh)) != 0;
}

void append_utf8(std::string& out, std::uint32_t point) {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (point >> 6)));
    out.push_back(static_cast<char>(0x80 | (point & 0x3f)));
  } else if (point < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (point >> 12)));
    out.push_back(static_cast<char>(0x80 | ((point >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (point & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (point >> 18)));
    out.push_back(static_cast<char>(0x80 | ((point >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((point >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (point & 0x3f)));
  }
}

std::uint32_t four_hex(std::string_view digits) {
  std::uint32_t unit = 0;
  for (const char digit : digits.substr(0, 4)) unit = unit * 16 + static_cast<std::uint32_t>(hex_value(digit));
  return unit;
}

// `inner` has passed pass_string, so each escape is whole and surrogates come in pairs.
void decode(std::string_view inner, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '\\') {
      out.push_back(inner[i]);
      continue;
    }
    const char kind = inner[++i];
    if (kind != 'u') {
      constexpr std::string_view kKinds = "bfnrt", kMeanings = "\b\f\n\r\t";
      const std::size_t place = kKinds.find(kind);
      out.push_back(place == std::string_view::npos ? kind : kMeanings[place]);
      continue;
    }
    std::uint32_t point = four_hex(inner.substr(i + 1));
    i += 4;
    if (point >= 0xd800 && point < 0xdc00) {
      point = 0x10000 + ((point - 0xd800) << 10) + (four_hex(inner.substr(i + 3)) - 0xdc00);
      i += 6;
    }
    append_utf8(out, point);
  }
}

}  // namespace

bool Scanner::fail(std::string_view reason) {
  if (reason_.empty()) reason_ = reason;
  return false;
}

void Scanner::blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    ++at_;
  }
}

char Scanner::peek() {
  blanks();
  return at_ < text_.size() ? text_[at_] : '\0';
}

std::size_t Scanner::value_begins() {
  blanks();
  return at_;
}

bool Scanner::at_end() {
  blanks();
  return at_ == text_.size();
}

bool Scanner::take(char wanted) {
  if (peek() != wanted || at_ == text_.size()) return false;
  ++at_;
  return true;
}

bool Scanner::begin(char bracket, std::string_view what) {
  if (failed()) return false;
  if (!take(bracket)) return fail("not " + std::string(what));
  if (++depth_ > depth_max_) return fail("nested too deeply");
  first_ = true;
  return true;
}

bool Scanner::next_member(std::string_view& key) {
  if (failed()) return false;
  if (take('}')) {
    first_ = false;
    --depth_;
    return false;
  }
  if (!first_ && !take(',')) return fail("neither ',' nor '}' after a member");
  first_ = false;
  bool escaped = false;
  if (peek() != '"') return fail("a member without a key");
  if (!pass_string(key, escaped)) return false;
  return take(':') || fail("no ':' after a key");
}

bool Scanner::next_element() {
  if (failed()) return false;
  if (take(']')) {
    first_ = false;
    --depth_;
    return false;
  }
  if (!first_ && !take(',')) return fail("neither ',' nor ']' after an element");
  first_ = false;
  return true;
}

bool Scanner::pass_if(std::string_view expected) {
  blanks();
  if (text_.compare(at_, expected.size(), expected) != 0) return false;
  at_ += expected.size();
  return true;
}

bool Scanner::pass_string(std::string_view& inner, bool& escaped) {
  const std::size_t begin = ++at_;  // after the quote
  while (true) {
    std::uint64_t eight = 0;
    while (at_ + sizeof eight <= text_.size()) {
      std::memcpy(&eight, text_.data() + at_, sizeof eight);
      if (has_special(eight)) break;
      at_ += sizeof eight;
    }
    if (at_ >= text_.size()) return fail("a string without an end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      inner = text_.substr(begin, at_ - begin);
      ++at_;
      return true;
    }
    if (c == '\\') {
      escaped = true;
      if (!pass_escape()) return false;
    } else if (c < 0x20) {
      return fail("a control character in a string");
    } else if (c < 0x80) {
      ++at_;
    } else if (!pass_utf8()) {
      return false;
    }
  }
}

bool Scanner::pass_escape() {
  const auto unit_at = [this](std::size_t at, std::uint32_t& unit) {
    if (at + 6 > text_.size() || text_[at] != '\\' || text_[at + 1] != 'u') return false;
    for (std::size_t i = 2; i < 6; ++i)
      if (hex_value(text_[at + i]) < 0) return false;
    unit = four_hex(text_.substr(at + 2));
    return true;
  };
  if (at_ + 1 >= text_.size()) return fail("a string without an end");
  if (text_[at_ + 1] != 'u') {
    if (std::string_view("\"\\/bfnrt").find(text_[at_ + 1]) == std::string_view::npos) return fail("a bad escape");
    at_ += 2;
    return true;
  }
  std::uint32_t unit = 0;
  if (!unit_at(at_, unit)) return fail("a bad escape");
  at_ += 6;
  if (unit < 0xd800 || unit >= 0xe000) return true;
  std::uint32_t low = 0;
  if (unit >= 0xdc00 || !unit_at(at_, low) || low < 0xdc00 || low >= 0xe000) return fail("half a surrogate pair");
  at_ += 6;
  return true;
}

bool Scanner::pass_utf8() {
  const auto byte = [this](std::size_t i) -> unsigned {
    return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0;
  };
  const auto goes_on = [&byte](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned lead = byte(0), second = byte(1);
  std::size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) length = 2;
  if ((lead & 0xf0) == 0xe0) length = 3;
  if (lead >= 0xf0 && lead <= 0xf4) length = 4;
  bool good = length > 0 && goes_on(1) && (length < 3 || goes_on(2)) && (length < 4 || goes_on(3));
  // Too long for what they say, surrogates, and above the last code point.
  if (lead == 0xe0 && second < 0xa0) good = false;
  if (lead == 0xed && second > 0x9f) good = false;
  if (lead == 0xf0 && second < 0x90) good = false;
  if (lead == 0xf4 && second > 0x8f) good = false;
  if (!good) return fail("not UTF-8");
  at_ += length;
  return true;
}

bool Scanner::pass_number() {
  if (text_[at_] == '-') ++at_;
  const auto digits = [this] {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  };
  if (at_ < text_.size() && text_[at_] == '0') {
    ++at_;
  } else if (!digits()) {
    return fail("not a JSON value");
  }
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (!digits()) return fail("not a number");
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (!digits()) return fail("not a number");
  }
  return true;
}

bool Scanner::pass_word(std::string_view word) {
  if (text_.compare(at_, word.size(), word) != 0) return fail("not a JSON value");
  at_ += word.size();
  return true;
}

bool Scanner::read_string(std::string_view& out, std::string& room) {
  if (failed()) return false;
  if (peek() != '"') return fail("not a string");
  bool escaped = false;
  if (!pass_string(out, escaped)) return false;
  if (escaped) {
    decode(out, room);
    out = room;
  }
  return true;
}

bool Scanner::read_unsigned(std::uint64_t& out) {
  if (failed()) return false;
  peek();
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    if (at_ - begin >= 18) return fail("a number above 10^18");
    value = value * 10 + static_cast<std::uint64_t>(text_[at_] - '0');
  }
  const bool zeros = at_ - begin > 1 && text_[begin] == '0';
  const bool goes_on = at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
  if (at_ == begin || zeros || goes_on) return fail("not a whole number of 0 or more");
  out = value;
  return true;
}

bool Scanner::read_integer(std::int64_t& out) {
  const bool negative = !failed() && peek() == '-';
  if (negative) ++at_;
  std::uint64_t magnitude = 0;
  if (negative && at_ < text_.size() && !is_digit(text_[at_])) return fail("not a whole number");
  if (!read_unsigned(magnitude)) return false;
  out = negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
  return true;
}

bool Scanner::skip_any() {
  std::string_view ignored;
  bool escaped = false;
  switch (peek()) {
    case '{':
      if (!begin_object()) return false;
      while (next_member(ignored))
        if (!skip_any()) return false;
      return !failed();
    case '[':
      if (!begin_array()) return false;
      while (next_element())
        if (!skip_any()) return false;
      return !failed();
    case '"':
      return pass_string(ignored, escaped);
    case 't':
      return pass_word("true");
    case 'f':
      return pass_word("false");
    case 'n':
      return pass_word("null");
    default:
      if (at_ == text_.size()) return fail("the text ends in the middle");
      return pass_number();
  }
}

bool Scanner::skip_value(std::string_view& raw) {
  if (failed()) return false;
  const std::size_t begin = value_begins();
  if (!skip_any()) return false;
  raw = from(begin);
  return true;
}

void append_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      out += "\\u00";
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace weighlock::awex
