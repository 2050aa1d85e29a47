#include "demo_fleet.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "weighlock/config/options.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock::cli {
namespace {

constexpr Milliseconds kStartWait{60'000};  // a loaded machine; each takes a fraction of a second on an idle one
constexpr std::size_t kRanks = 2;
const std::vector<std::string> kDialects = {"sglang", "sglang", "vllm"};

// "sglang http://127.0.0.1:1234" -> the URL at its end.
Result<Url> url_at_end(const std::string& line) {
  const std::size_t at = line.find("http://");
  return parse_url(at == std::string::npos ? line : line.substr(at));
}

Error without(const std::string& program, Error error) {
  return wrap(program, std::move(error));
}

}  // namespace

struct DemoFleet::Directory {
  std::string path;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

Result<DemoFleet> DemoFleet::start(const std::string& programs, const std::function<void(const std::string&)>& say) {
  DemoFleet fleet;
  std::string pattern = (std::filesystem::temp_directory_path() / "weighlock-demo-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    return Error{ErrorCode::storage_failed, fmt::format("no directory '{}' could be made", pattern)};
  fleet.directory_ = std::make_shared<Directory>();
  fleet.directory_->path = pattern;
  const std::string& root = fleet.directory_->path;
  fleet.save_path = root + "/weights";
  std::error_code failed;
  std::filesystem::create_directory(fleet.save_path, failed);
  if (failed) return Error{ErrorCode::storage_failed, fmt::format("{}: {}", fleet.save_path, failed.message())};
  fleet.admin_key = config::kPublicAdminKey;

  // The trainer first: it writes the model that the engines start with.
  const std::string model = root + "/start";
  Result<Process> trainer =
      Process::start({programs + "/tinytrainer", "--ranks", fmt::format("{}", kRanks), "--port", "0", "--init", model},
                     root + "/tinytrainer.log");
  if (!trainer) return std::move(trainer).error();
  fleet.trainer_process_ = std::move(*trainer);
  Result<std::vector<std::string>> ranks = fleet.trainer_process_.await_lines("listening ", kRanks, kStartWait);
  if (!ranks) return without("tinytrainer", std::move(ranks).error());
  for (const std::string& line : *ranks) {
    Result<Url> url = url_at_end(line);
    if (!url) return without("tinytrainer", std::move(url).error());
    fleet.trainers.push_back(*url);
  }
  say(fmt::format("tinytrainer: {} ranks that hold one small model\n", kRanks));

  std::vector<std::string> command = {programs + "/tinyengine", "--model", model, "--served-model-name", "policy"};
  for (const std::string& dialect : kDialects) command.insert(command.end(), {"--engine", dialect + ":0"});
  Result<Process> engines = Process::start(command, root + "/tinyengine.log");
  if (!engines) return std::move(engines).error();
  fleet.engine_process_ = std::move(*engines);
  Result<std::vector<std::string>> lines =
      fleet.engine_process_.await_lines("listening ", kDialects.size(), kStartWait);
  if (!lines) return without("tinyengine", std::move(lines).error());

  Result<Process> gateway = Process::start(
      {programs + "/weighlock", "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir", root + "/state"},
      root + "/weighlock.log");
  if (!gateway) return std::move(gateway).error();
  fleet.gateway_process_ = std::move(*gateway);
  Result<std::vector<std::string>> address = fleet.gateway_process_.await_lines("listening on ", 1, kStartWait);
  if (!address) return without("weighlock serve", std::move(address).error());
  Result<Url> url = parse_url("http://" + address->front());
  if (!url) return without("weighlock serve", std::move(url).error());
  fleet.gateway = *url;
  say(fmt::format("weighlock serve: {}\n", fleet.gateway.text));

  for (std::size_t i = 0; i < kDialects.size(); ++i) {
    Result<Url> engine = url_at_end(lines->at(i));
    if (!engine) return without("tinyengine", std::move(engine).error());
    Url readiness = fleet.gateway;
    readiness.path = fmt::format("/v1/pairs/demo/workers/{}:{}/ready", engine->host, engine->port);
    fleet.engines.push_back(DemoEngine{*engine, kDialects[i], readiness});
    say(fmt::format("tinyengine: speaks {} at {}\n", kDialects[i], engine->text));
  }
  return fleet;
}

Status DemoFleet::stop() {
  const int code = gateway_process_.stop();
  if (code != 0)
    return Error{ErrorCode::internal, fmt::format("weighlock serve ended with {}; it wrote:\n{}", code,
                                                  tail(gateway_process_.log_path(), 20))};
  engine_process_.stop();
  trainer_process_.stop();
  return {};
}

std::string DemoFleet::logs() const {
  std::string out;
  for (const Process* process : {&trainer_process_, &engine_process_, &gateway_process_})
    out += fmt::format("{}:\n{}", std::filesystem::path(process->log_path()).filename().string(),
                       tail(process->log_path(), 30));
  return out;
}

}  // namespace weighlock::cli
