#include "tinyengine/engine/completions.hpp"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "tinyengine/model/tokenizer.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::size_t kTopMax = 20;

Error invalid(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

// Null where it isn't a number: JSON has no NaN.
json::value number(float value) {
  return std::isfinite(value) ? json::value(static_cast<double>(value)) : json::value(nullptr);
}

Result<std::vector<int>> read_prompt(const json::value* text, const json::value* ids, const ModelShape& shape) {
  std::vector<int> prompt;
  if (ids && ids->is_array()) {
    for (const json::value& id : ids->as_array()) {
      if (!id.is_int64() || id.as_int64() < 0 || id.as_int64() >= static_cast<std::int64_t>(shape.vocabulary)) {
        return invalid(fmt::format("a token id must be a whole number from 0 to {}", shape.vocabulary - 1));
      }
      prompt.push_back(static_cast<int>(id.as_int64()));
    }
  } else if (text && text->is_string()) {
    prompt = encode_text({text->as_string().data(), text->as_string().size()});
  } else {
    return invalid("the prompt must be a text or a list of token ids");
  }
  if (prompt.empty()) prompt.push_back(kBeginToken);
  if (prompt.size() >= shape.positions_max) {
    return invalid(fmt::format("the prompt has {} tokens, the model takes {}", prompt.size(), shape.positions_max - 1));
  }
  return prompt;
}

std::size_t read_count(const json::value& body, std::string_view key, std::size_t fallback, std::size_t limit) {
  const auto value = find_int(body, key);
  return value && *value >= 0 ? std::min(static_cast<std::size_t>(*value), limit) : fallback;
}

json::array choice_row(const TokenChoice& choice) {
  return {number(choice.logprob), choice.token, nullptr};
}

json::object top_object(const TokenChoice& choice) {
  json::object top;
  for (const auto& [token, logprob] : choice.top) top[decode_token(token)] = number(logprob);
  return top;
}

json::object completion_logprobs(const Generation& generation, std::size_t from) {
  json::array offsets, logprobs, tokens, tops;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < generation.output.size(); ++i) {
    const TokenChoice& choice = generation.output[i];
    const std::string text = decode_token(choice.token);
    if (i >= from) {
      offsets.push_back(offset);
      logprobs.push_back(number(choice.logprob));
      tokens.emplace_back(text);
      tops.emplace_back(top_object(choice));
    }
    offset += text.size();
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(tokens)},
          {"top_logprobs", std::move(tops)}};
}

// vLLM's: null for the first token, then {"id": {logprob, rank, decoded_token}}.
json::array completion_prompt_logprobs(const Generation& generation) {
  json::array rows{nullptr};
  for (const TokenChoice& choice : generation.prompt_choices) {
    rows.push_back(
        json::object{{fmt::format("{}", choice.token), json::object{{"logprob", number(choice.logprob)},
                                                                    {"rank", nullptr},
                                                                    {"decoded_token", decode_token(choice.token)}}}});
  }
  return rows;
}

json::object finish_object(const Generation& generation, Finish finish) {
  if (finish == Finish::stop) return {{"type", "stop"}, {"matched", kEndToken}};
  if (finish == Finish::abort)
    return {{"type", "abort"}, {"message", "Aborted"}, {"status_code", nullptr}, {"err_type", nullptr}};
  return {{"type", "length"}, {"length", generation.output.size()}};
}

}  // namespace

Result<TextRequest> parse_generate(const json::value& body, const ModelShape& shape) {
  TextRequest request;
  auto prompt = read_prompt(find(body, "text"), find(body, "input_ids"), shape);
  if (!prompt) return std::move(prompt).error();
  request.generation.prompt = *std::move(prompt);
  const json::value* sampling = find(body, "sampling_params");
  const json::value none(json::object{});
  const json::value& parameters = sampling && sampling->is_object() ? *sampling : none;
  request.generation.tokens_max = read_count(parameters, "max_new_tokens", 128, shape.positions_max);
  request.generation.ignore_end = find_bool(parameters, "ignore_eos").value_or(false);
  request.generation.id = find_string(body, "rid").value_or("");
  request.adapter = find_string(body, "lora_path").value_or("");
  request.generation.top_count = read_count(body, "top_logprobs_num", 0, kTopMax);
  request.stream = find_bool(body, "stream").value_or(false);
  request.want_logprobs = find_bool(body, "return_logprob").value_or(false);
  const auto from = find_int(body, "logprob_start_len");
  if (request.want_logprobs && from && *from >= 0) {
    request.want_prompt_logprobs = true;
    request.generation.prompt_logprobs_from = static_cast<std::size_t>(*from);
  }
  return request;
}

Result<TextRequest> parse_completion(const json::value& body, const ModelShape& shape) {
  TextRequest request;
  const json::value* given = find(body, "prompt");
  auto prompt = read_prompt(given, given, shape);
  if (!prompt) return std::move(prompt).error();
  request.generation.prompt = *std::move(prompt);
  request.generation.tokens_max = read_count(body, "max_tokens", 16, shape.positions_max);
  request.generation.ignore_end = find_bool(body, "ignore_eos").value_or(false);
  request.stream = find_bool(body, "stream").value_or(false);
  request.echo = find_bool(body, "echo").value_or(false);
  request.model = find_string(body, "model").value_or("");
  request.adapter = find_string(body, "lora_path").value_or("");
  if (const auto count = find_int(body, "logprobs")) {
    request.want_logprobs = true;
    request.generation.top_count =
        static_cast<std::size_t>(std::max<std::int64_t>(1, std::min<std::int64_t>(*count, kTopMax)));
  }
  if (const json::value* member = find(body, "prompt_logprobs"); member && !member->is_null()) {
    request.want_prompt_logprobs = true;
    request.generation.prompt_logprobs_from = 0;
  }
  return request;
}

std::string output_text(const Generation& generation, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < generation.output.size(); ++i) text += decode_token(generation.output[i].token);
  return text;
}

bool has_nan(const Generation& generation) {
  for (const TokenChoice& choice : generation.output) {
    if (!std::isfinite(choice.logprob)) return true;
  }
  return false;
}

json::object generate_answer(const TextRequest& request, const Generation& generation, std::optional<Finish> finish,
                             const std::string& label, double seconds) {
  json::array ids, spans;
  for (const int token : generation.output_tokens()) ids.emplace_back(token);
  for (const VersionSpan& span : generation.spans) {
    spans.push_back(json::object{{"version", span.version}, {"start", span.start}, {"end", span.end}});
  }
  json::object meta;
  meta["id"] = generation.request.id;
  meta["finish_reason"] = finish ? json::value(finish_object(generation, *finish)) : json::value(nullptr);
  meta["prompt_tokens"] = generation.request.prompt.size();
  meta["weight_version"] = generation.spans.empty() ? label : generation.spans.back().version;
  meta["weight_versions"] = std::move(spans);
  meta["num_retractions"] = generation.retractions;
  if (request.want_logprobs) {
    json::array input, output, tops;
    if (request.want_prompt_logprobs) {
      const std::size_t from = *generation.request.prompt_logprobs_from;
      if (from < generation.request.prompt.size())
        input.push_back(json::array{nullptr, generation.request.prompt[from], nullptr});
      for (const TokenChoice& choice : generation.prompt_choices) input.push_back(choice_row(choice));
    }
    for (const TokenChoice& choice : generation.output) {
      output.push_back(choice_row(choice));
      json::array top;
      for (const auto& [token, logprob] : choice.top) top.push_back(json::array{number(logprob), token, nullptr});
      tops.emplace_back(std::move(top));
    }
    meta["input_token_logprobs"] = std::move(input);
    meta["output_token_logprobs"] = std::move(output);
    if (request.generation.top_count > 0) meta["output_top_logprobs"] = std::move(tops);
  }
  meta["completion_tokens"] = generation.output.size();
  meta["cached_tokens"] = generation.cached_tokens;
  meta["e2e_latency"] = seconds;
  return {{"text", output_text(generation)}, {"output_ids", std::move(ids)}, {"meta_info", std::move(meta)}};
}

json::object completion_answer(const TextRequest& request, const Generation& generation, std::optional<Finish> finish,
                               std::size_t from) {
  json::object choice;
  choice["index"] = 0;
  choice["text"] =
      (request.echo && from == 0 ? decode_tokens(generation.request.prompt) : "") + output_text(generation, from);
  choice["logprobs"] =
      request.want_logprobs ? json::value(completion_logprobs(generation, from)) : json::value(nullptr);
  choice["finish_reason"] = finish ? json::value(json::string(name(*finish))) : json::value(nullptr);
  choice["stop_reason"] = nullptr;
  choice["prompt_logprobs"] =
      request.want_prompt_logprobs ? json::value(completion_prompt_logprobs(generation)) : json::value(nullptr);
  const std::size_t prompt = generation.request.prompt.size(), completion = generation.output.size();
  json::object answer;
  answer["id"] = generation.request.id;
  answer["object"] = "text_completion";
  answer["created"] = static_cast<std::int64_t>(std::time(nullptr));
  answer["model"] = request.model;
  answer["choices"] = json::array{std::move(choice)};
  answer["usage"] = json::object{{"prompt_tokens", prompt},
                                 {"total_tokens", prompt + completion},
                                 {"completion_tokens", completion},
                                 {"prompt_tokens_details", json::object{{"cached_tokens", generation.cached_tokens}}}};
  return answer;
}

}  // namespace weighlock::tiny
