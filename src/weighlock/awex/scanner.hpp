// Reads JSON in one pass, by pulling: for texts of hundreds of MB whose shape is known.
//
// Why not a parser that builds values or calls back: a member that nobody understands is handed on as the bytes that
// were sent, and a part that repeats an earlier one is recognised by its bytes. As strict as core's parse_json (UTF-8,
// no NaN, no control characters in strings, nesting), but for duplicate keys of values that are skipped; a test
// compares both.
//
// Use: begin_object(); while (next_member(key)) read or skip one value; then look at failed(). After a failure all
// calls return false, and the position and reason stay. Views point into the text. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weighlock::awex {

class Scanner {
 public:
  Scanner(std::string_view text, std::size_t depth_max) : text_(text), depth_max_(depth_max) {}

  bool failed() const { return !reason_.empty(); }
  const std::string& reason() const { return reason_; }
  std::size_t position() const { return at_; }
  // Always false. `reason` is kept if it is the first.
  bool fail(std::string_view reason);

  bool begin_object() { return begin('{', "an object"); }
  // The key as it is written, without quotes; escapes in keys are left alone (no key that we know has any).
  bool next_member(std::string_view& key);
  bool begin_array() { return begin('[', "a list"); }
  bool next_element();

  // Decoded; valid until the next call that takes the same `room`.
  bool read_string(std::string_view& out, std::string& room);
  bool read_unsigned(std::uint64_t& out);
  bool read_integer(std::int64_t& out);
  bool skip_value(std::string_view& raw);

  // Whether the text goes on with `expected`, byte for byte; if so, it is passed over.
  bool pass_if(std::string_view expected);
  // Begins a value: blanks are passed over and the position is the value's first byte.
  std::size_t value_begins();
  std::string_view from(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  char peek();
  // Only blanks are left.
  bool at_end();

 private:
  bool begin(char bracket, std::string_view what);
  bool take(char wanted);
  void blanks();
  bool pass_string(std::string_view& inner, bool& escaped);
  bool pass_escape();
  bool pass_utf8();
  bool pass_number();
  bool pass_word(std::string_view word);
  bool skip_any();

  std::string_view text_;
  std::size_t depth_max_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  bool first_ = false;  // nothing of the innermost object or list was read yet
  std::string reason_;
};

// Appends `text` as the inside of a JSON string.
void append_escaped(std::string& out, std::string_view text);

}  // namespace weighlock::awex
