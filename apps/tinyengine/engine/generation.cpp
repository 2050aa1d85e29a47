#include "tinyengine/engine/generation.hpp"

#include <algorithm>
#include <numeric>

#include "tinyengine/model/tokenizer.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::size_t kEntriesMax = 64;  // of the prefix cache: a demo's worth of prompts

TokenChoice choose(const std::vector<float>& logits, int token, std::size_t top_count) {
  TokenChoice choice{token, log_probability(logits, token), {}};
  const std::size_t count = std::min(top_count, logits.size());
  if (count == 0) return choice;
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), better);
  const float offset = choice.logprob - logits[static_cast<std::size_t>(token)];
  for (std::size_t i = 0; i < count; ++i)
    choice.top.emplace_back(order[i], logits[static_cast<std::size_t>(order[i])] + offset);
  return choice;
}

}  // namespace

std::string_view name(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::abort:
      return "abort";
    case Finish::died:
      return "error";
  }
  return "";
}

std::vector<int> Generation::output_tokens() const {
  std::vector<int> tokens;
  for (const TokenChoice& choice : output) tokens.push_back(choice.token);
  return tokens;
}

std::vector<int> Generation::tokens() const {
  std::vector<int> all = request.prompt;
  for (const TokenChoice& choice : output) all.push_back(choice.token);
  return all;
}

void Generation::advance(const Llama& model, const std::string& label, std::size_t tokens_max) {
  const std::vector<int> all = tokens();
  const auto from = request.prompt_logprobs_from;
  std::vector<float> logits;
  for (std::size_t fed = 0; fed < tokens_max && cache.length < all.size(); ++fed) {
    const std::size_t at = cache.length;
    const bool last = at + 1 == all.size();
    const bool judged = from && at >= *from && at + 1 < request.prompt.size() && at - *from == prompt_choices.size();
    model.forward(all[at], cache, last || judged ? &logits : nullptr);
    if (judged) prompt_choices.push_back(choose(logits, all[at + 1], request.top_count));
    if (!last) continue;
    if (request.tokens_max == 0) {
      finish = Finish::length;
      return;
    }
    const int token = greedy_token(logits);
    output.push_back(choose(logits, token, request.top_count));
    if (spans.empty() || spans.back().version != label) spans.push_back({label, output.size() - 1, output.size() - 1});
    spans.back().end = output.size();
    if (token == kEndToken && !request.ignore_end) {
      finish = Finish::stop;
    } else if (output.size() >= request.tokens_max || all.size() + 1 >= model.shape().positions_max) {
      finish = Finish::length;
    }
    return;
  }
}

void Generation::retract() {
  cache = KvCache{};
  ++retractions;
}

KvCache PrefixCache::find(const std::vector<int>& tokens, const ServedAdapter* adapter, std::size_t length_max,
                          const ModelShape& shape) {
  std::size_t best_length = 0;
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->adapter.get() != adapter) continue;
    const std::size_t limit = std::min({tokens.size(), length_max, entry->cache.length});
    std::size_t common = 0;
    while (common < limit && entry->tokens[common] == tokens[common]) ++common;
    common -= common % block_;
    if (common > best_length) {
      best_length = common;
      best = entry;
    }
  }
  return best == entries_.end() ? KvCache{} : best->cache.prefix(best_length, shape);
}

void PrefixCache::keep(std::vector<int> tokens, std::shared_ptr<const ServedAdapter> adapter, KvCache cache) {
  if (cache.length == 0) return;
  std::erase_if(entries_, [&](const Entry& entry) {  // an older computation of the same tokens is superseded
    return entry.adapter == adapter && entry.cache.length <= cache.length &&
           std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(entry.cache.length),
                      entry.tokens.begin());
  });
  entries_.push_front({std::move(tokens), std::move(adapter), std::move(cache)});
  if (entries_.size() > kEntriesMax) entries_.pop_back();
}

}  // namespace weighlock::tiny
