// What the tests of SGLang's measured behaviour share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {

inline constexpr auto kSglangEndless =
    R"({"text":"weighlock","sampling_params":{"max_new_tokens":4000,"ignore_eos":true}})";
inline constexpr auto kSglangShort =
    R"({"text":"a longer prompt that is worth caching","sampling_params":{"max_new_tokens":12,"ignore_eos":true},)"
    R"("return_logprob":true})";

class SglangTest : public testing::Test {
 protected:
  int start(EngineTimings timings = quick_timings(), std::string key = "", std::string admin = "") {
    EngineSettings settings;
    settings.dialect = DialectKind::sglang;
    settings.model_directory = models("v1");
    settings.api_key = std::move(key);
    settings.admin_api_key = std::move(admin);
    settings.timings = timings;
    return rig.start(settings);
  }
  int start_slow() {  // a request of thousands of tokens stays running
    EngineTimings timings = quick_timings();
    timings.step_least = Milliseconds{4};
    return start(timings);
  }
  Answer load(int port, const std::string& name, const std::string& version = "", const std::string& more = "") {
    std::string body = R"({"model_path":")" + models(name) + "\"";
    if (!version.empty()) body += R"(,"weight_version":")" + version + "\"";
    return call(port, "POST", "/update_weights_from_disk", body + more + "}", within(20'000));
  }
  std::string state(int port, const std::string& member) {
    return call(port, "GET", "/_tiny/state").text("/" + member);
  }
  std::string text_of(int port) { return call(port, "POST", "/generate", kSglangShort).text("/text"); }
  // What a fresh engine on that directory says.
  std::string clean_text(const std::string& name) {
    EngineSettings settings;
    settings.model_directory = models(name);
    settings.timings = quick_timings();
    return text_of(rig.start(settings));
  }
  bool runs(int port, const std::string& count) {
    return comes_true([&] { return state(port, "running") == count; });
  }

  TestModels& models = test_models();
  Rig rig;
};

}  // namespace weighlock::tiny
