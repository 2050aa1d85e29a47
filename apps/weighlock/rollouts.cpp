#include "rollouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "weighlock/client/exchange.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kPrompt = "The boat enters the lock, the gates close, and";
constexpr int kShownTokens = 24;
constexpr int kRolloutTokens = 16;
constexpr Milliseconds kCallLimit{60'000};  // longer than any pause of the demo: whoever waits so long was forgotten
constexpr auto kNotReadyWait = std::chrono::milliseconds(50);

HttpRequest generation(const DemoEngine& engine, int tokens) {
  HttpRequest request{"POST", "", {{"Content-Type", "application/json"}}, ""};
  const json::string_view prompt(kPrompt.data(), kPrompt.size());
  if (engine.dialect == "sglang") {
    request.target = "/generate";
    request.body = json::serialize(json::object{
        {"text", prompt},
        {"sampling_params", json::object{{"max_new_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}}}});
  } else {
    request.target = "/v1/completions";
    request.body = json::serialize(json::object{
        {"model", "policy"}, {"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}});
  }
  return request;
}

struct Generated {
  std::string text;
  bool cut_short = false;
};

Result<Generated> read_generated(const DemoEngine& engine, const HttpResult& result) {
  if (const auto* failure = std::get_if<TransportError>(&result))
    return Error{ErrorCode::connection_lost, fmt::format("{}: {}", engine.url.text, failure->text)};
  const HttpResponse& response = std::get<HttpResponse>(result);
  const auto odd = [&] {
    return Error{ErrorCode::bad_answer,
                 fmt::format("{}: {} {}", engine.url.text, response.status, response.body.substr(0, 200))};
  };
  Result<json::value> parsed = parse_json(response.body, engine.url.text);
  if (response.status != 200 || !parsed) return odd();
  const json::value* part = &*parsed;
  std::string reason;
  if (engine.dialect == "sglang") {
    const json::value* meta = find(*parsed, "meta_info");
    const json::value* finish = meta ? find(*meta, "finish_reason") : nullptr;
    if (finish) reason = find_string(*finish, "type").value_or("");
  } else {
    const json::value* choices = find(*parsed, "choices");
    if (!choices || !choices->is_array() || choices->get_array().empty()) return odd();
    part = &choices->get_array()[0];
    reason = find_string(*part, "finish_reason").value_or("");
  }
  const auto text = find_string(*part, "text");
  if (!text) return odd();
  return Generated{std::string(*text), reason == "abort"};
}

bool is_ready(client::Exchange& exchange, const DemoEngine& engine) {
  const HttpResult result = exchange.send(engine.readiness, HttpRequest{"GET", "", {}, ""}, Milliseconds(5000));
  const auto* response = std::get_if<HttpResponse>(&result);
  return response && response->status == 200;
}

}  // namespace

Result<std::string> greedy_text(const DemoEngine& engine, Milliseconds deadline) {
  client::Exchange exchange;
  Result<Generated> generated =
      read_generated(engine, exchange.send(engine.url, generation(engine, kShownTokens), deadline));
  if (!generated) return std::move(generated).error();
  return generated->text;
}

Rollouts::Rollouts(const std::vector<DemoEngine>& engines) {
  for (const DemoEngine& engine : engines) threads_.emplace_back([this, engine] { generate(engine); });
}

Rollouts::~Rollouts() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

RolloutCounts Rollouts::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

void Rollouts::generate(const DemoEngine& engine) {
  client::Exchange exchange;
  while (!stopping_) {
    if (!is_ready(exchange, engine)) {
      std::this_thread::sleep_for(kNotReadyWait);
      continue;
    }
    const Clock::time_point start = Clock::now();
    const Result<Generated> generated =
        read_generated(engine, exchange.send(engine.url, generation(engine, kRolloutTokens), kCallLimit));
    const auto took_ms = std::chrono::duration_cast<Milliseconds>(Clock::now() - start).count();
    const std::scoped_lock lock(mutex_);
    counts_.slowest_ms = std::max<std::int64_t>(counts_.slowest_ms, took_ms);
    if (!generated) {
      ++counts_.failed;
      counts_.last_failure = generated.error().text();
    } else if (generated->cut_short) {
      ++counts_.cut_short;
    } else {
      ++counts_.completed;
    }
  }
}

}  // namespace weighlock::cli
