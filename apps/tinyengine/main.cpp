// tinyengine: any number of small inference engines in one process, speaking SGLang's or vLLM's control API.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinyengine/engine/engine.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::string_view kUsage =
    R"(tinyengine --model DIR --engine DIALECT:PORT [--engine ...] [options]

  --model DIR                a Llama safetensors directory; also per engine: --engine sglang:0=DIR
  --engine DIALECT:PORT      sglang or vllm; port 0 is any free one
  --host ADDRESS             127.0.0.1
  --served-model-name NAME   the model directory
  --api-key KEY              asked for by the routes that the real engine guards
  --admin-api-key KEY        SGLang's control routes
  --world-size N             vLLM: how many workers a reload answers for (1)
  --max-lora-rank N          LoRA adapters up to this rank (0 = LoRA is off)
  --max-loaded-loras N       SGLang: more of them, and the least recently used is unloaded (0 = no limit)
  --max-cpu-loras N          vLLM: more of them, and the least recently used is read again when asked for (0 = no limit)
  --lora NAME=DIR            loaded at each start; may be repeated
  --time-scale FACTOR        of the delays that the real engines show (1.0); 0.01 for tests
  --load-ms N                each load takes so much longer (0)
  --step-ms N                a generation step takes at least so long (0)
  --threads N                of the pool that computes (2)
  --control-port PORT        serves /N/_tiny/... for engine N (from 0), also while it is dead
  --ports-file FILE          one line an engine: DIALECT URL

Prints one line an engine: "listening sglang http://127.0.0.1:PORT"; with a control port "listening control http://...".
)";

struct Options {
  std::vector<EngineSettings> engines;
  EngineSettings common;
  double time_scale = 1.0;
  std::size_t threads = 2;
  int control_port = -1;
  std::string ports_file;
  bool help = false;
};

Error usage(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message) + "; see tinyengine --help"};
}

template <typename Number>
Result<Number> number(std::string_view flag, std::string_view text) {
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value < 0) {
    return usage(fmt::format("{}: '{}' is not a number from 0 on", flag, text));
  }
  return value;
}

Result<EngineSettings> parse_engine(std::string_view text) {
  EngineSettings engine;
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos) engine.model_directory = text.substr(equals + 1);
  const std::string_view head = text.substr(0, equals);
  const std::size_t colon = head.find(':');
  const auto dialect = dialect_from(head.substr(0, colon));
  if (!dialect) return usage(fmt::format("--engine: '{}' is not sglang:PORT or vllm:PORT", text));
  engine.dialect = *dialect;
  if (colon != std::string_view::npos) {
    auto port = number<int>("--engine", head.substr(colon + 1));
    if (!port) return std::move(port).error();
    engine.port = *port;
  }
  return engine;
}

Status apply_number(Options& options, std::string_view flag, std::string_view value) {
  if (flag == "--time-scale") {
    auto scale = number<double>(flag, value);
    if (!scale) return std::move(scale).error();
    options.time_scale = *scale;
    return {};
  }
  auto whole = number<int>(flag, value);
  if (!whole) return std::move(whole).error();
  AdapterSettings& adapters = options.common.adapters;
  if (flag == "--max-lora-rank") adapters.rank_max = static_cast<std::size_t>(*whole);
  if (flag == "--max-loaded-loras") adapters.loaded_max = static_cast<std::size_t>(*whole);
  if (flag == "--max-cpu-loras") adapters.cached_max = static_cast<std::size_t>(*whole);
  if (flag == "--world-size") options.common.world_size = *whole;
  if (flag == "--load-ms") options.common.timings.load = Milliseconds{*whole};
  if (flag == "--step-ms") options.common.timings.step_least = Milliseconds{*whole};
  if (flag == "--threads") options.threads = static_cast<std::size_t>(std::max(1, *whole));
  if (flag == "--control-port") options.control_port = *whole;
  return {};
}

Status apply(Options& options, std::string_view flag, std::string_view value) {
  for (const std::string_view known : {"--time-scale", "--world-size", "--load-ms", "--step-ms", "--threads",
                                       "--control-port", "--max-lora-rank", "--max-loaded-loras", "--max-cpu-loras"}) {
    if (flag == known) return apply_number(options, flag, value);
  }
  if (flag == "--engine") {
    auto engine = parse_engine(value);
    if (!engine) return std::move(engine).error();
    options.engines.push_back(*std::move(engine));
    return {};
  }
  if (flag == "--lora") {
    const std::size_t equals = value.find('=');
    if (equals == std::string_view::npos) return usage(fmt::format("--lora: '{}' is not NAME=DIR", value));
    options.common.adapters.at_start.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    return {};
  }
  struct Row {
    std::string_view flag;
    std::string* target;
  };
  const Row rows[] = {{"--model", &options.common.model_directory},
                      {"--host", &options.common.host},
                      {"--served-model-name", &options.common.served_model_name},
                      {"--api-key", &options.common.api_key},
                      {"--admin-api-key", &options.common.admin_api_key},
                      {"--ports-file", &options.ports_file}};
  for (const Row& row : rows) {
    if (row.flag != flag) continue;
    *row.target = value;
    return {};
  }
  return usage(fmt::format("unknown flag '{}'", flag));
}

Result<Options> parse(const std::vector<std::string_view>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i];
    if (flag == "--help") {
      options.help = true;
      return options;
    }
    const std::size_t equals = flag.find('=');
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return usage(fmt::format("{} needs a value", flag));
    }
    if (Status applied = apply(options, flag, value); !applied) return applied.error();
  }
  if (options.engines.empty()) return usage("no --engine");
  for (EngineSettings& engine : options.engines) {
    EngineSettings settings = options.common;
    settings.timings = settings.timings.scaled(options.time_scale);
    settings.dialect = engine.dialect;
    settings.port = engine.port;
    if (!engine.model_directory.empty()) settings.model_directory = engine.model_directory;
    if (settings.model_directory.empty()) return usage("no --model");
    engine = std::move(settings);
  }
  return options;
}

// "/3/_tiny/state" -> engine 3, "/_tiny/state"
void route_control(const std::vector<std::unique_ptr<Engine>>& engines, const HttpRequest& request,
                   const Responder& responder) {
  const std::string_view target = request.target;
  std::size_t index = 0;
  const auto [end, failed] = std::from_chars(target.data() + 1, target.data() + target.size(), index);
  const std::string_view rest(end, static_cast<std::size_t>(target.data() + target.size() - end));
  if (failed != std::errc{} || index >= engines.size() || !rest.starts_with("/_tiny/")) {
    json::array list;
    for (const auto& engine : engines) list.emplace_back(engine->state());
    responder.respond(json_response(target == "/" ? 200 : 404, list));
    return;
  }
  engines[index]->handle_tiny(request, rest, responder);
}

int run(const Options& options) {
  Loop loop;
  Pool pool(loop, options.threads);
  std::vector<std::unique_ptr<Engine>> engines;
  std::string lines;
  for (const EngineSettings& settings : options.engines) {
    engines.push_back(std::make_unique<Engine>(loop, pool, settings));
    if (Status started = engines.back()->start(); !started) {
      fmt::print(stderr, "tinyengine: {}\n", started.error().text());
      return 1;
    }
    lines += fmt::format("{} {}\n", name(settings.dialect), engines.back()->url());
    fmt::print("listening {} {}\n", name(settings.dialect), engines.back()->url());
  }
  HttpServer control(loop,
                     [&](HttpRequest request, Responder responder) { route_control(engines, request, responder); });
  if (options.control_port >= 0) {
    HttpServer::Settings at;
    at.host = options.common.host;
    at.port = options.control_port;
    if (Status opened = control.listen(at); !opened) {
      fmt::print(stderr, "tinyengine: control port: {}\n", opened.error().text());
      return 1;
    }
    fmt::print("listening control http://{}:{}\n", options.common.host, control.port());
  }
  if (!options.ports_file.empty()) std::ofstream(options.ports_file) << lines;
  std::fflush(stdout);
  loop.on_signal([&](int) { loop.stop(); });
  loop.run();
  return 0;
}

}  // namespace
}  // namespace weighlock::tiny

int main(int argc, char** argv) {
  const auto options = weighlock::tiny::parse({argv + 1, argv + argc});
  if (!options) {
    fmt::print(stderr, "tinyengine: {}\n", options.error().text());
    return 2;
  }
  if (options->help) {
    fmt::print("{}", weighlock::tiny::kUsage);
    return 0;
  }
  return weighlock::tiny::run(*options);
}
