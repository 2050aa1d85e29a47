// One token per character: ids 0 to 2 are <unk> <s> </s>, then tab, newline, the printable ASCII characters, and the
// characters from U+00A1 on, as many as fill the vocabulary of 256.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weighlock::tiny {

inline constexpr int kUnknownToken = 0;
inline constexpr int kBeginToken = 1;
inline constexpr int kEndToken = 2;
inline constexpr int kTokenizerSize = 256;

// No begin token is added. A character without a token, and each byte that isn't UTF-8, is <unk>.
std::vector<int> encode_text(std::string_view text);
// Special tokens and ids without a character decode to nothing.
std::string decode_tokens(const std::vector<int>& tokens);
std::string decode_token(int token);

// The files that transformers needs to do the same.
std::string tokenizer_text();
std::string tokenizer_config_text(std::size_t positions_max);
std::string generation_config_text();

}  // namespace weighlock::tiny
