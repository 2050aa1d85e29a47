#include "weighlock/core/json_member.hpp"

#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace weighlock {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Takes everything and keeps nothing, but the text of a string.
template <bool kKeepsText>
struct Checker {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  std::string text;

  bool take(json::string_view s) {
    if constexpr (kKeepsText) text.append(s.data(), s.size());
    return true;
  }
  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return true; }
  bool on_object_end(std::size_t, json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_key(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) { return take(s); }
  bool on_string(json::string_view s, std::size_t, json::error_code&) { return take(s); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

// Walks the members of the outermost object; each key and value is one document for Boost's parser, which tells where
// it ends.
class Walk {
 public:
  Walk(std::string_view text, std::string_view what, JsonLimits limits) : text_(text), what_(what) {
    options_.max_depth = limits.depth_max;
  }

  Result<JsonMember> find(std::string_view key) {
    skip_blanks();
    JsonMember out;
    if (next() != '{') {
      out = JsonMember{JsonMember::Kind::not_an_object, value()};
    } else {
      ++at_;
      skip_blanks();
      bool more = next() != '}';
      if (!more) ++at_;
      while (more) more = member(key, out);
    }
    skip_blanks();
    if (!failure_ && at_ != text_.size()) fail("text after the JSON value");
    if (failure_) return *std::move(failure_);
    return out;
  }

 private:
  // False after the last.
  bool member(std::string_view key, JsonMember& out) {
    if (next() != '"') return fail("a key in quotes is expected");
    json::basic_parser<Checker<true>> name(options_);
    if (!document(name)) return false;
    if (next() != ':') return fail("a colon is expected");
    ++at_;
    skip_blanks();
    const std::string_view found = value();
    if (name.handler().text == key) out = JsonMember{JsonMember::Kind::found, found};
    const char end = next();
    if (end != ',' && end != '}') return fail("a comma or the object's end is expected");
    ++at_;
    skip_blanks();
    return end == ',';
  }

  std::string_view value() {
    const std::size_t begin = at_;
    json::basic_parser<Checker<false>> parser(options_);
    if (!document(parser)) return {};
    const std::string_view out = text_.substr(begin, at_ - begin);
    return out.substr(0, out.find_last_not_of(kBlanks) + 1);
  }

  template <typename Parser>
  bool document(Parser& parser) {
    if (failure_) return false;
    json::error_code failure;
    const std::string_view rest = text_.substr(at_);
    at_ += parser.write_some(false, rest.data(), rest.size(), failure);
    if (failure) return fail(failure.message());
    skip_blanks();
    return true;
  }

  void skip_blanks() {
    if (failure_) return;
    const std::size_t found = text_.find_first_not_of(kBlanks, at_);
    at_ = found == std::string_view::npos ? text_.size() : found;
  }

  // NUL at the end; a NUL in the text is refused by whoever expects something else.
  char next() const { return failure_ || at_ == text_.size() ? '\0' : text_[at_]; }

  bool fail(std::string_view why) {
    if (!failure_)
      failure_ = Error{ErrorCode::invalid_argument, fmt::format("{}: not JSON at byte {}: {}", what_, at_, why)};
    return false;
  }

  std::string_view text_;
  std::string_view what_;
  json::parse_options options_;
  std::size_t at_ = 0;
  std::optional<Error> failure_;
};

}  // namespace

Result<JsonMember> find_member(std::string_view text, std::string_view key, std::string_view what, JsonLimits limits) {
  return Walk(text, what, limits).find(key);
}

}  // namespace weighlock
