#include "tinyengine/model/tokenizer.hpp"

#include "weighlock/core/json.hpp"

namespace weighlock::tiny {
namespace {

constexpr int kFirstCharacter = 3;                       // after the special tokens
constexpr int kFirstPrintable = kFirstCharacter + 2;     // after tab and newline
constexpr int kFirstLatin = kFirstPrintable + 127 - 32;  // after the printable ASCII characters
constexpr std::uint32_t kLatinBegin = 0xA1;
constexpr std::string_view kSpecial[] = {"<unk>", "<s>", "</s>"};

int token_of(std::uint32_t code) {
  if (code == '\t') return kFirstCharacter;
  if (code == '\n') return kFirstCharacter + 1;
  if (code >= 32 && code < 127) return kFirstPrintable + static_cast<int>(code - 32);
  const std::int64_t latin = kFirstLatin + static_cast<std::int64_t>(code) - kLatinBegin;
  return code >= kLatinBegin && latin < kTokenizerSize ? static_cast<int>(latin) : kUnknownToken;
}

std::uint32_t code_of(int token) {
  if (token == kFirstCharacter) return '\t';
  if (token == kFirstCharacter + 1) return '\n';
  if (token < kFirstLatin) return static_cast<std::uint32_t>(32 + token - kFirstPrintable);
  return kLatinBegin + static_cast<std::uint32_t>(token - kFirstLatin);
}

// Bytes of the UTF-8 character at `text[at]`, or 0 if there is none. All of the vocabulary fits in two bytes.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::vector<int> encode_text(std::string_view text) {
  std::vector<int> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (length == 1) {
      tokens.push_back(token_of(static_cast<unsigned char>(text[at])));
    } else if (length == 2) {
      tokens.push_back(token_of(((static_cast<unsigned char>(text[at]) & 0x1Fu) << 6) |
                                (static_cast<unsigned char>(text[at + 1]) & 0x3Fu)));
    } else {
      tokens.push_back(kUnknownToken);
    }
    at += length == 0 ? 1 : length;
  }
  return tokens;
}

std::string decode_token(int token) {
  if (token < kFirstCharacter || token >= kTokenizerSize) return "";
  const std::uint32_t code = code_of(token);
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

std::string decode_tokens(const std::vector<int>& tokens) {
  std::string text;
  for (const int token : tokens) text += decode_token(token);
  return text;
}

std::string tokenizer_text() {
  json::object vocabulary;
  json::array added;
  for (int token = 0; token < kTokenizerSize; ++token) {
    if (token >= kFirstCharacter) {
      vocabulary[decode_token(token)] = token;
      continue;
    }
    vocabulary[kSpecial[token]] = token;
    added.push_back(json::object{{"id", token},
                                 {"content", kSpecial[token]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  json::object root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = std::move(added);
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = json::object{
      {"type", "Split"}, {"pattern", json::object{{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  root["post_processor"] = nullptr;
  root["decoder"] = json::object{{"type", "Fuse"}};
  root["model"] = json::object{{"type", "WordLevel"}, {"vocab", std::move(vocabulary)}, {"unk_token", "<unk>"}};
  return json::serialize(root);
}

std::string tokenizer_config_text(std::size_t positions_max) {
  json::object root;
  root["tokenizer_class"] = "PreTrainedTokenizerFast";
  root["unk_token"] = "<unk>";
  root["bos_token"] = "<s>";
  root["eos_token"] = "</s>";
  root["model_max_length"] = positions_max;
  root["chat_template"] = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}";
  return json::serialize(root);
}

std::string generation_config_text() {
  return json::serialize(json::object{{"bos_token_id", kBeginToken}, {"eos_token_id", kEndToken}});
}

}  // namespace weighlock::tiny
