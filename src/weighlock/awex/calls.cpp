#include "weighlock/awex/calls.hpp"

#include <fmt/format.h>

#include <string>

#include "weighlock/awex/failure_words.hpp"
#include "weighlock/core/transport.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

std::string quoted(std::string_view text) {
  return json::serialize(json::string(text));
}

// With the blanks that Python's json prints.
HttpRequest post(std::string_view target, std::string body) {
  return HttpRequest{
      "POST", std::string(target), {{"Accept", "*/*"}, {"Content-Type", "application/json"}}, std::move(body)};
}

HttpRequest post_nothing(std::string_view target) {
  return HttpRequest{
      "POST", std::string(target), {{"Accept", "*/*"}, {"Content-Type", "application/octet-stream"}}, ""};
}

// Workers make "tcp://ADDRESS:PORT" of it.
std::string in_a_url(std::string_view address) {
  const bool is_six = address.find(':') != std::string_view::npos;
  return is_six ? fmt::format("[{}]", address) : std::string(address);
}

bool is_a_proxys(int status) {
  return status == 408 || status == 502 || status == 504;
}

constexpr std::size_t kShown = 100;  // of a worker's value, in an error

bool is_number(const json::value& value, std::int64_t wanted) {
  if (value.is_int64()) return value.get_int64() == wanted;
  return value.is_string() && value.get_string() == std::to_string(wanted);
}

bool tells_more(const Parallelism& one) {
  return !one.converter_context.is_null() || !one.parameter_layout.is_null();
}

}  // namespace

Answer classify(std::string_view target, const HttpResult& result, std::optional<std::int64_t> version) {
  if (const TransportError* error = std::get_if<TransportError>(&result)) {
    const std::string what = error->text.empty() ? std::string(name(error->kind)) : printable(error->text);
    return {error->nothing_sent ? AnswerKind::not_sent : AnswerKind::unknown, code_of(error->kind),
            fmt::format("{} got no answer: {}", target, what), false, false};
  }
  const HttpResponse& response = std::get<HttpResponse>(result);
  const Result<json::value> body = parse_json(response.body, "answer");
  const auto status = body ? find_string(*body, "status") : std::nullopt;
  if (response.status == 200 && (status == "success" || status == "ok")) {
    const json::value* told = version ? find(*body, "version") : nullptr;
    if (!told || told->is_null() || is_number(*told, *version)) return {AnswerKind::ok, {}, "", false, false};
    return {AnswerKind::failed, ErrorCode::bad_answer,
            fmt::format("{} for version {} was answered with version {}", target, *version,
                        printable(json::serialize(*told), kShown)),
            false, false};
  }
  const std::string words = words_of(response.body);
  std::string text = fmt::format("{} answered {}", target, response.status);
  text += words.empty() ? std::string(" without a word") : fmt::format(" \"{}\"", words);
  if (response.status == 401 || response.status == 403)
    text +=
        ": calls to /awex routes carry no key, since AReaL's workers ask for none; let the worker answer these "
        "routes without one, and keep others off it by network";
  if (is_a_proxys(response.status)) return {AnswerKind::unknown, ErrorCode::unreachable, text, false, false};
  return {AnswerKind::failed, response.status == 200 ? ErrorCode::bad_answer : ErrorCode::worker_failed, text,
          tells_of_a_peer(words), tells_of_a_taken_port(words)};
}

HttpRequest parallelism_request(bool with_device) {
  return HttpRequest{"GET",
                     with_device ? "/awex/report_parallelism?include_device=1" : "/awex/report_parallelism",
                     {{"Accept", "*/*"}},
                     ""};
}

Result<Parallelism> read_parallelism(std::string_view who, const HttpResult& result) {
  const auto bad = [&](ErrorCode code, std::string_view text) {
    return Error{code, fmt::format("{}: {}", who, text), nullptr};
  };
  const HttpResponse* response = std::get_if<HttpResponse>(&result);
  if (!response || response->status != 200) {
    const Answer answer = classify("GET /awex/report_parallelism", result);
    return bad(answer.code, answer.text);
  }
  const Result<json::value> body = parse_json(response->body, "answer of /awex/report_parallelism");
  if (!body) return bad(ErrorCode::bad_answer, body.error().text());
  constexpr std::int64_t kWorldMax = 1'000'000;
  const auto world = find_int(*body, "world_size");
  if (!world || *world < 1 || *world > kWorldMax)
    return bad(ErrorCode::bad_answer, fmt::format("GET /awex/report_parallelism: \"world_size\" is not a number from 1 "
                                                  "to {}",
                                                  kWorldMax));
  Parallelism out;
  out.world_size = static_cast<std::uint32_t>(*world);
  if (const json::value* found = find(*body, "converter_context")) out.converter_context = *found;
  if (const json::value* found = find(*body, "parameter_layout")) out.parameter_layout = *found;
  const auto ip = find_string(*body, "ip");
  const json::value* device = find(*body, "device_id");
  if (ip && device && !device->is_null())
    out.device = {printable(*ip),
                  device->is_string() ? printable(device->get_string()) : printable(json::serialize(*device))};
  return out;
}

HttpRequest train_meta_request(const Parallelism& train, const Parallelism& infer, std::uint32_t infer_world) {
  if (!tells_more(train) && !tells_more(infer)) return post_nothing("/awex/report_weight_meta");
  json::object body{{"infer_conf", nullptr}};
  if (infer.converter_context.is_object()) {
    json::object context = infer.converter_context.get_object();
    context["infer_world_size"] = infer_world;
    body["infer_conf"] = std::move(context);
  }
  return post("/awex/report_weight_meta", json::serialize(body));
}

HttpRequest infer_meta_request(const Parallelism& train, const Parallelism& infer) {
  if (!tells_more(train) && !tells_more(infer)) return post_nothing("/awex/report_weight_meta");
  const json::value layout = train.parameter_layout.is_null() ? json::value("hf") : train.parameter_layout;
  return post("/awex/report_weight_meta", json::serialize(json::object{{"parameter_layout", layout}}));
}

HttpRequest init_request(const BringUp& all, std::string_view kv_store_url, std::uint32_t transfer_rank) {
  return post(
      "/awex/init_weights_update_group",
      fmt::format(R"({{"pair_name": {}, "master_addr": {}, "master_port": {}, "world_size": {}, )"
                  R"("kv_store_url": {}, "infer_world_size": {}, "train_world_size": {}, "num_engines": {}, )"
                  R"("transfer_rank": {}}})",
                  quoted(all.pair_name), quoted(in_a_url(all.master_addr)), all.master_port, all.world_size,
                  quoted(kv_store_url), all.infer_world_size, all.train_world_size, all.engines, transfer_rank));
}

HttpRequest init_colocate_request(const BringUp& all, std::string_view kv_store_url, std::uint32_t transfer_rank) {
  return post("/awex/init_colocate_weight_update",
              fmt::format(R"({{"pair_name": {}, "kv_store_url": {}, "infer_world_size": {}, "train_world_size": {}, )"
                          R"("num_engines": {}, "master_port": {}, "admin_api_key": {}, "transfer_rank": {}}})",
                          quoted(all.pair_name), quoted(kv_store_url), all.infer_world_size, all.train_world_size,
                          all.engines, all.master_port, quoted(all.admin_api_key), transfer_rank));
}

HttpRequest warm_up_request(std::uint32_t world_size) {
  return post("/awex/batch_isend_irecv", fmt::format(R"({{"world_size": {}}})", world_size));
}

HttpRequest update_request(std::int64_t version) {
  return post("/awex/update_weights", fmt::format(R"({{"version": {}}})", version));
}

HttpRequest colocate_update_request(std::int64_t version) {
  return post("/awex/execute_colocate_weight_update", fmt::format(R"({{"version": {}}})", version));
}

HttpRequest memory_request(bool release, std::string_view tag) {
  return post(release ? "/awex/release_memory" : "/awex/resume_memory", fmt::format(R"({{"tags": ["{}"]}})", tag));
}

HttpRequest teardown_request() {
  return post("/awex/teardown", "{}");
}

std::vector<std::string> colocate_keys(std::uint32_t train_ranks, std::int64_t version) {
  std::vector<std::string> out;
  for (std::uint32_t rank = 0; rank < train_ranks; ++rank) {
    out.push_back(fmt::format("colocate_weights_rank{}_{}", rank, version));
    out.push_back(fmt::format("colocate_done_rank{}_{}", rank, version));
  }
  return out;
}

std::string store_url(std::string_view address, int port) {
  return fmt::format("http://{}:{}", in_a_url(address), port);
}

}  // namespace weighlock::awex
