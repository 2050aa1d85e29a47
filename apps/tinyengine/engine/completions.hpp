// Requests for text and their answers, in the shapes of SGLang's /generate and of OpenAI's /v1/completions.
//
// Pure functions over values.
#pragma once

#include <memory>
#include <string>

#include "tinyengine/engine/generation.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

struct TextRequest {
  GenerationRequest generation;
  bool stream = false;
  bool want_logprobs = false;
  bool want_prompt_logprobs = false;
  bool echo = false;
  std::string model;    // /v1/completions
  std::string adapter;  // SGLang's "lora_path": a name; "" for the base
};

// `shape` bounds the token ids and the length.
Result<TextRequest> parse_generate(const json::value& body, const ModelShape& shape);
Result<TextRequest> parse_completion(const json::value& body, const ModelShape& shape);

// The text of output tokens from `from` on.
std::string output_text(const Generation& generation, std::size_t from = 0);
bool has_nan(const Generation& generation);

json::object generate_answer(const TextRequest& request, const Generation& generation, std::optional<Finish> finish,
                             const std::string& label, double seconds);
// The text of `choices[0]` holds tokens from `from` on (streams send what is new).
json::object completion_answer(const TextRequest& request, const Generation& generation, std::optional<Finish> finish,
                               std::size_t from = 0);

}  // namespace weighlock::tiny
