#include "weighlock/journal/encoding.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace weighlock {
namespace {

constexpr std::string_view kDomain = "weighlock.journal.1\n";
constexpr std::size_t kUsualBytes = 512;  // of a record; longer ones grow

std::string hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

void append_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && c != '"' && c != '\\') {
      out += c;
    } else if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (const std::size_t at = std::string_view("\b\f\n\r\t").find(c); at != std::string_view::npos) {
      (out += '\\') += "bfnrt"[at];
    } else {
      ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
    }
  }
  out += '"';
}

void append_value(std::string& out, const json::value& value);

// Straight into the text: a copy in order would cost more than all else that is done with a record.
void append_sorted(std::string& out, const json::object& object) {
  std::vector<const json::key_value_pair*> members;
  members.reserve(object.size());
  for (const json::key_value_pair& member : object) members.push_back(&member);
  std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->key() < b->key(); });
  char before = '{';
  for (const json::key_value_pair* member : members) {
    out += std::exchange(before, ',');
    append_text(out, {member->key().data(), member->key().size()});
    out += ':';
    append_value(out, member->value());
  }
  out += members.empty() ? "{}" : "}";
}

void append_value(std::string& out, const json::value& value) {
  if (const json::object* object = value.if_object()) return append_sorted(out, *object);
  if (const json::string* text = value.if_string()) return append_text(out, {text->data(), text->size()});
  if (const json::array* array = value.if_array()) {
    char before = '[';
    for (const json::value& item : *array) {
      out += std::exchange(before, ',');
      append_value(out, item);
    }
    out += array->empty() ? "[]" : "]";
    return;
  }
  out += json::serialize(value);
}

// Length of the UTF-8 sequence at the start of `text`, 0 if it is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;  // overlong, surrogate
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;  // overlong, above U+10FFFF
  return length;
}

// JSON text keeps all bytes above 0x7f as they were, so that the whole text can be mended at once.
std::string valid_utf8(std::string text) {
  std::string_view rest = text;
  const auto first_bad = [](std::string_view s) {
    std::size_t at = 0;
    while (at < s.size()) {
      const std::size_t length = utf8_length(s.substr(at));
      if (length == 0) return at;
      at += length;
    }
    return at;
  };
  std::size_t good = first_bad(rest);
  if (good == rest.size()) return text;
  std::string out;
  while (true) {
    out.append(rest.substr(0, good));
    if (good == rest.size()) return out;
    out += "\xef\xbf\xbd";
    rest.remove_prefix(good + 1);
    good = first_bad(rest);
  }
}

std::optional<protocol::RecordKind> kind_from(std::string_view word) {
  for (int i = 0; i <= static_cast<int>(protocol::RecordKind::superseded); ++i) {
    const auto kind = static_cast<protocol::RecordKind>(i);
    if (protocol::name(kind) == word) return kind;
  }
  return std::nullopt;
}

Error corrupt(std::int64_t number, std::string_view why) {
  return Error{ErrorCode::journal_corrupt, fmt::format("record {}: {}", number, why)};
}

}  // namespace

std::string encode_record(const protocol::Record& record, std::int64_t wall_ms) {
  std::string out;
  out.reserve(kUsualBytes);
  out += "{\"body\":";
  append_sorted(out, record.body);
  out += ",\"kind\":";
  append_text(out, protocol::name(record.kind));
  out += ",\"pair\":";
  append_text(out, record.pair);
  out += ",\"update\":";
  append_text(out, record.update);
  fmt::format_to(std::back_inserter(out), ",\"wall_ms\":{},\"worker\":", wall_ms);
  append_text(out, record.worker);
  out += '}';
  return valid_utf8(std::move(out));
}

std::string chain_hash(std::int64_t number, std::string_view previous, std::string_view body) {
  WEIGHLOCK_CHECK(previous.size() == kJournalHashBytes, "a link of the chain has 32 bytes");
  unsigned char big_endian[8];
  for (int i = 0; i < 8; ++i)
    big_endian[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(number) >> (56 - 8 * i));
  // Finding the algorithm and making a context cost more than hashing a record.
  static EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  std::string out(kJournalHashBytes, '\0');
  unsigned length = 0;
  const bool ok = context && sha256 && EVP_DigestInit_ex(context.get(), sha256, nullptr) == 1 &&
                  EVP_DigestUpdate(context.get(), kDomain.data(), kDomain.size()) == 1 &&
                  EVP_DigestUpdate(context.get(), big_endian, sizeof big_endian) == 1 &&
                  EVP_DigestUpdate(context.get(), previous.data(), previous.size()) == 1 &&
                  EVP_DigestUpdate(context.get(), body.data(), body.size()) == 1 &&
                  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(out.data()), &length) == 1;
  WEIGHLOCK_CHECK(ok && length == kJournalHashBytes, "SHA-256 is part of every OpenSSL");
  return out;
}

std::string short_hash(std::string_view raw) {
  constexpr std::size_t kShown = 6;
  return hex(raw.substr(0, kShown)) + "...";
}

Result<JournalEntry> decode_row(std::int64_t number, std::string_view previous, std::string_view hash,
                                std::string_view body) {
  if (previous.size() != kJournalHashBytes || hash.size() != kJournalHashBytes)
    return corrupt(number, "its hashes have a wrong length");
  if (const std::string real = chain_hash(number, previous, body); real != hash)
    return corrupt(number, fmt::format("its content doesn't agree with its hash: it was altered (the hash is {}, the "
                                       "content gives {})",
                                       short_hash(hash), short_hash(real)));
  Result<json::value> value = parse_json(body, fmt::format("record {}", number));
  if (!value) return corrupt(number, value.error().message);
  const std::optional<std::string_view> word = find_string(*value, "kind");
  const std::optional<protocol::RecordKind> kind = word ? kind_from(*word) : std::nullopt;
  if (!kind)
    return corrupt(number, fmt::format("kind '{}' is unknown; it was written by a newer release", word.value_or("")));
  JournalEntry entry;
  entry.number = number;
  entry.wall_ms = find_int(*value, "wall_ms").value_or(0);
  entry.record.kind = *kind;
  entry.record.pair = find_string(*value, "pair").value_or("");
  entry.record.update = find_string(*value, "update").value_or("");
  entry.record.worker = find_string(*value, "worker").value_or("");
  if (json::object* inner = value->as_object()["body"].if_object()) entry.record.body = std::move(*inner);
  entry.previous_hash = hex(previous);
  entry.hash = hex(hash);
  return entry;
}

}  // namespace weighlock
