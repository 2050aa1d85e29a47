#include "weighlock/core/words.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "weighlock/core/json.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kCut = "...";

// Length of the UTF-8 character that starts at `at`, or 0 where there is none.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) length = 2;
  if (first >= 0xE0 && first <= 0xEF) length = 3;
  if (first >= 0xF0 && first <= 0xF4) length = 4;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // a surrogate
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

// Where the element that opens at `at` ends, if its content isn't text for people; else npos.
std::size_t end_of_silent_element(std::string_view html, std::size_t at) {
  for (const std::string_view name : {"script", "style"}) {
    if (!starts_with_word(html.substr(at + 1), name)) continue;
    for (std::size_t i = at + 1; i + 2 + name.size() <= html.size(); ++i) {
      if (html[i] == '<' && html[i + 1] == '/' && starts_with_word(html.substr(i + 2), name)) return i;
    }
    return html.size();
  }
  return std::string_view::npos;
}

std::string without_tags(std::string_view html) {
  std::string text;
  std::size_t at = 0;
  while (at < html.size()) {
    if (html[at] != '<') {
      text += html[at++];
      continue;
    }
    if (const std::size_t end = end_of_silent_element(html, at); end != std::string_view::npos) at = end;
    const std::size_t close = html.find('>', at);
    at = close == std::string_view::npos ? html.size() : close + 1;
    text += ' ';
  }
  return text;
}

bool looks_like_html(std::string_view body) {
  const std::size_t at = body.find_first_not_of(" \t\r\n");
  if (at == std::string_view::npos) return false;
  return starts_with_word(body.substr(at), "<!doctype") || starts_with_word(body.substr(at), "<html");
}

std::optional<std::string> message_in(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string().c_str(), value.get_string().size());
  for (const std::string_view key : {"message", "error_message", "error", "detail"}) {
    const json::value* member = find(value, key);
    if (!member || member->is_null()) continue;
    if (member->is_string() && !member->get_string().empty())
      return std::string(member->get_string().data(), member->get_string().size());
    if (const json::value* inner = find(*member, "message"); inner && inner->is_string())
      return std::string(inner->get_string().data(), inner->get_string().size());
    if (!member->is_string()) return json::serialize(*member);
  }
  return std::nullopt;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string line;
  std::size_t cut_at = 0;  // the longest whole part that leaves room for kCut
  bool blank_due = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    const auto first = static_cast<unsigned char>(text[at]);
    if (length == 1 && (first <= 0x20 || first == 0x7F)) {
      blank_due = !line.empty();
      ++at;
      continue;
    }
    if (blank_due) line += ' ';
    blank_due = false;
    line += length == 0 ? std::string_view("?") : text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
    if (line.size() > bytes_max) {
      line.resize(cut_at);
      return bytes_max >= kCut.size() ? line.append(kCut) : line;
    }
    if (line.size() + kCut.size() <= bytes_max) cut_at = line.size();
  }
  return line;
}

std::string words_of(std::string_view body, std::size_t bytes_max) {
  if (looks_like_html(body)) return printable(without_tags(body), bytes_max);
  if (const Result<json::value> parsed = parse_json(body, "answer")) {
    if (const std::optional<std::string> message = message_in(*parsed)) return printable(*message, bytes_max);
  }
  return printable(body, bytes_max);
}

}  // namespace weighlock
