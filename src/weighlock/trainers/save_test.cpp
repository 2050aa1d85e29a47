#include "weighlock/trainers/save.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock {
namespace {

SaveOutcome answered(int status, std::string body) {
  return classify_save(HttpResponse{status, {}, std::move(body)});
}

TEST(Save, request_is_the_recorded_one_to_the_byte) {
  const HttpRequest request = make_save_request("/shared/w/weight_update_v1");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/save");
  EXPECT_EQ(
      request.body,
      R"({"args": [{"type": "dataclass", "class_path": "areal.api.io_struct.SaveLoadMeta", "data": {"path": "/shared/w/weight_update_v1", "weight_format": "hf", "with_optim": false, "tokenizer": null, "processor": null, "base_model_path": null, "naive_distributed": false}}], "kwargs": {}})");
  EXPECT_EQ(request.body.size(), 280U);
  EXPECT_EQ(header(request.headers, "content-type"), "application/json");
  EXPECT_EQ(header(request.headers, "authorization"), "");
}

TEST(Save, request_stays_json_whatever_the_directory_is_called) {
  const std::string directory = "/w/a \"b\\c\n{}\xc3\xa9";
  const Result<json::value> body = parse_json(make_save_request(directory).body, "body");
  ASSERT_TRUE(body);
  const json::value& meta = find(*body, "args")->get_array().at(0);
  EXPECT_EQ(find_string(*find(meta, "data"), "path"), directory);
}

TEST(Save, is_ok_only_when_the_rank_says_success) {
  EXPECT_EQ(answered(200, "{\"result\":null,\"status\":\"success\"}\n").kind, SaveKind::ok);
  EXPECT_EQ(answered(200, R"({"status":"success"})").text, "");
  const std::vector<std::pair<int, std::string>> others = {{200, ""},
                                                           {200, "ok"},
                                                           {200, "null"},
                                                           {200, R"({"status":"error"})"},
                                                           {200, R"({"status":true})"},
                                                           {200, R"({"result":null})"},
                                                           {200, R"([{"status":"success"}])"},
                                                           {201, R"({"status":"success"})"},
                                                           {500, R"({"status":"success"})"}};
  for (const auto& [status, body] : others)
    EXPECT_EQ(name(answered(status, body).kind), "failed") << status << " " << body;
}

TEST(Save, failure_keeps_the_ranks_own_words) {
  EXPECT_EQ(answered(400, R"({"error":"Engine not created. Call /create_engine first."})").text,
            "POST /save answered 400 \"Engine not created. Call /create_engine first.\"");
  EXPECT_EQ(answered(500, R"({"error":"Internal server error: [Errno 28] No space left on device"})").text,
            "POST /save answered 500 \"Internal server error: [Errno 28] No space left on device\"");
  EXPECT_EQ(answered(500, "").text, "POST /save answered 500 without a word");
  EXPECT_EQ(answered(200, "garbage").code, ErrorCode::bad_answer);
  EXPECT_EQ(answered(400, R"({"error":"x"})").code, ErrorCode::trainer_failed);
}

TEST(Save, failure_told_by_a_page_is_told_as_text_and_bounded) {
  EXPECT_EQ(
      answered(
          500,
          "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>\n<h1>Internal Server Error</h1>\n"
          "<p>The server encountered an internal error.</p>\n")
          .text,
      "POST /save answered 500 \"500 Internal Server Error Internal Server Error The server encountered an internal "
      "error.\"");
  EXPECT_LT(answered(500, std::string(1'000'000, 'x')).text.size(), limits::kEngineTextBytesMax + 64);
}

TEST(Save, without_an_answer_may_still_run_unless_nothing_was_sent) {
  for (const auto kind : {TransportError::Kind::timeout, TransportError::Kind::reset, TransportError::Kind::malformed,
                          TransportError::Kind::too_large, TransportError::Kind::cancelled}) {
    const SaveOutcome outcome = classify_save(TransportError{kind, false, ""});
    EXPECT_EQ(outcome.kind, SaveKind::unknown) << name(kind);
    EXPECT_NE(outcome.text.find(name(kind)), std::string::npos) << outcome.text;
  }
  const SaveOutcome refused = classify_save(TransportError{TransportError::Kind::refused, true, "connection refused"});
  EXPECT_EQ(refused.kind, SaveKind::not_sent);
  EXPECT_EQ(refused.code, ErrorCode::unreachable);
}

TEST(Save, answered_by_a_proxy_may_still_run) {
  for (const int status : {408, 502, 504})
    EXPECT_EQ(answered(status, "<html>gateway</html>").kind, SaveKind::unknown) << status;
  EXPECT_EQ(answered(503, "").kind, SaveKind::failed);
}

TEST(Save, rank_that_answers_from_its_queue_is_out_of_the_saves_before) {
  EXPECT_EQ(make_queue_request().method, "GET");
  EXPECT_EQ(make_queue_request().target, "/get_version");
  const auto answer = [](int status, std::string body) {
    return classify_queue(HttpResponse{status, {}, std::move(body)});
  };
  EXPECT_EQ(answer(200, R"({"result":7,"status":"success"})"), QueueAnswer::passed);
  EXPECT_EQ(answer(400, R"({"error":"Engine not created. Call /create_engine first."})"), QueueAnswer::passed);
  EXPECT_EQ(answer(500, R"({"error":"Internal server error: CUDA"})"), QueueAnswer::passed);
  for (const int status : {408, 502, 503, 504}) EXPECT_EQ(answer(status, R"({"error":"gateway"})"), QueueAnswer::none);
  EXPECT_EQ(classify_queue(TransportError{TransportError::Kind::reset, false, "reset"}), QueueAnswer::none);
  EXPECT_EQ(answer(404, R"({"error":"no such route"})"), QueueAnswer::not_known);
  EXPECT_EQ(answer(405, "<html>"), QueueAnswer::not_known);
  EXPECT_EQ(answer(200, "OK"), QueueAnswer::not_known);
}

}  // namespace
}  // namespace weighlock
