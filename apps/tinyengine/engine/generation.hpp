// One request for text, from its arrival to its end; and the cache of prefixes that requests leave behind.
//
// A Generation is advanced by one thread of the pool at a time; between two steps only the loop touches it (core.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tinyengine/model/adapter.hpp"

namespace weighlock::tiny {

// An adapter as one load brought it. Two loads of one directory are two of them.
struct ServedAdapter {
  std::string name;
  std::string directory;
  std::shared_ptr<const Adapter> adapter;
};

struct GenerationRequest {
  std::string id;
  std::shared_ptr<const ServedAdapter> adapter;  // null: the base model
  std::vector<int> prompt;                       // not empty; every id inside the vocabulary
  std::size_t tokens_max = 16;
  bool ignore_end = false;                          // go on after </s>
  std::size_t top_count = 0;                        // alternatives listed for each token
  std::optional<std::size_t> prompt_logprobs_from;  // logprobs of the prompt's tokens from this index on
};

struct TokenChoice {
  int token = 0;
  float logprob = 0.0f;
  std::vector<std::pair<int, float>> top;  // best first
};

// Output tokens [start, end) were made under this label.
struct VersionSpan {
  std::string version;
  std::size_t start = 0;
  std::size_t end = 0;
};

enum class Finish { stop, length, abort, died };
std::string_view name(Finish finish);

struct Generation {
  GenerationRequest request;
  std::vector<TokenChoice> output;
  std::vector<TokenChoice> prompt_choices;  // from prompt_logprobs_from + 1 on: the first token has no probability
  std::vector<VersionSpan> spans;
  std::size_t cached_tokens = 0;
  std::size_t retractions = 0;
  std::uint64_t arrival = 0;  // counted by the core, from 1 on
  KvCache cache;
  std::optional<Finish> finish;

  std::function<void(const Generation&)> on_token;        // may be empty
  std::function<void(const Generation&, Finish)> on_end;  // called once, on the loop

  std::vector<int> tokens() const;  // prompt and output
  std::vector<int> output_tokens() const;
  // Feeds at most `tokens_max` tokens that the cache lacks; makes one output token if that was all of them.
  void advance(const Llama& model, const std::string& label, std::size_t tokens_max);
  // Frees the cache, to be computed anew.
  void retract();
};

// Keys and values by token prefix and adapter. It knows nothing of weights: what isn't flushed after a load is served
// stale, as engines do.
class PrefixCache {
 public:
  // `block`: only whole blocks of so many tokens are found again (vLLM 16, SGLang 1).
  explicit PrefixCache(std::size_t block) : block_(block) {}

  // The longest known prefix of `tokens`, at most `length_max` long.
  KvCache find(const std::vector<int>& tokens, const ServedAdapter* adapter, std::size_t length_max,
               const ModelShape& shape);
  void keep(std::vector<int> tokens, std::shared_ptr<const ServedAdapter> adapter, KvCache cache);
  void clear() { entries_.clear(); }
  std::size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<int> tokens;
    std::shared_ptr<const ServedAdapter> adapter;
    KvCache cache;
  };
  std::size_t block_;
  std::list<Entry> entries_;  // the latest first
};

}  // namespace weighlock::tiny
