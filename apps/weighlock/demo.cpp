// `weighlock demo`: the real gateway, with small engines and a small trainer, on this machine; it checks what it shows.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <set>

#include "demo_fleet.hpp"
#include "explain.hpp"
#include "progress.hpp"
#include "rollouts.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "weighlock/client/exchange.hpp"

namespace weighlock::cli {
namespace {

constexpr int kGoodUpdates = 5;
constexpr std::int64_t kRefusedVersion = 6;
constexpr std::int64_t kLastVersion = 7;
constexpr std::size_t kRefusingEngine = 1;  // the second SGLang
constexpr Milliseconds kUpdateWait{120'000};
constexpr Milliseconds kTextWait{30'000};
const std::string kPair = "demo";

std::int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the demo promises; the first broken promise ends it.
Status promise(bool kept, std::string what) {
  if (kept) return {};
  return Error{ErrorCode::internal, "the demo expected otherwise: " + std::move(what)};
}

class Demo {
 public:
  Demo(DemoFleet& fleet, Terminal& terminal)
      : fleet_(fleet), terminal_(terminal), gateway_(client::Settings{fleet.gateway, fleet.admin_key}) {}

  Status run() {
    if (Status done = connect(); !done) return done;
    if (Status done = remember_texts(); !done) return done;
    rollouts_ = std::make_unique<Rollouts>(fleet_.engines);
    for (std::int64_t version = 1; version <= kGoodUpdates; ++version) {
      if (Status done = good_update(version); !done) return done;
    }
    if (Status done = refused_update(); !done) return done;
    if (Status done = healed_update(); !done) return done;
    return summary();
  }

 private:
  void say(const std::string& text) { terminal_.out << text << std::flush; }

  Status connect() {
    json::array workers, trainers;
    for (const DemoEngine& engine : fleet_.engines)
      workers.push_back(json::object{{"url", engine.url.text}, {"dialect", "auto"}});
    for (const Url& trainer : fleet_.trainers) trainers.emplace_back(trainer.text);
    json::object spec{{"mode", "disk"}, {"save_path", fleet_.save_path}};
    spec["trainers"] = json::object{{"kind", "areal"}, {"urls", std::move(trainers)}};
    spec["workers"] = std::move(workers);
    Result<client::Pair> pair = gateway_.put_pair(kPair, spec);
    if (!pair) return std::move(pair).error();
    say(fmt::format("\npair '{}' is connected: {} trainer ranks save to {}, {} engines load from there\n", kPair,
                    fleet_.trainers.size(), fleet_.save_path, fleet_.engines.size()));
    return {};
  }

  // What each engine says before the first update: every later text must differ from the one before.
  Status remember_texts() {
    for (const DemoEngine& engine : fleet_.engines) {
      Result<std::string> text = greedy_text(engine, kTextWait);
      if (!text) return std::move(text).error();
      texts_[engine.url.text] = *text;
    }
    return {};
  }

  Result<client::Update> update(std::int64_t version) {
    client::UpdateRequest request;
    request.version = version;
    Result<client::Update> update = gateway_.start_update(kPair, request);
    if (!update) return update;
    Progress progress(terminal_);
    update = gateway_.await_update(kPair, update->id, kUpdateWait,
                                   [&](const client::Update& u) { progress.seen(u, monotonic_ms()); });
    progress.finish();
    if (update) say("\n" + explain(*update));
    return update;
  }

  // The engine says something else than before, and what every other engine of this version says.
  Status check_text(const DemoEngine& engine, std::int64_t version, std::set<std::string>& said) {
    Result<std::string> text = greedy_text(engine, kTextWait);
    if (!text) return std::move(text).error();
    say(fmt::format("  {:<7} {}  v{}  \"{}\"\n", engine.dialect, engine.url.text, version, one_line(*text)));
    if (Status ok = promise(*text != texts_[engine.url.text],
                            fmt::format("{} generates the same text after v{} as before", engine.url.text, version));
        !ok)
      return ok;
    texts_[engine.url.text] = *text;
    said.insert(*text);
    return promise(said.size() == 1, fmt::format("engines of v{} generate different texts", version));
  }

  Status check_ready(const DemoEngine& engine, std::int64_t version) {
    Result<std::vector<client::Worker>> workers = gateway_.workers(kPair);
    if (!workers) return std::move(workers).error();
    for (const client::Worker& worker : *workers) {
      if (worker.url != engine.url.text) continue;
      return promise(worker.state == "ready" && worker.version == version,
                     fmt::format("{} is {} at v{}, not ready at v{}", worker.url, worker.state,
                                 worker.version.value_or(-1), version));
    }
    return promise(false, fmt::format("the gateway doesn't know {}", engine.url.text));
  }

  Status good_update(std::int64_t version) {
    Result<client::Update> ended = update(version);
    if (!ended) return std::move(ended).error();
    if (Status ok = promise(ended->state == "succeeded", fmt::format("v{} ended as {}", version, ended->state)); !ok)
      return ok;
    pauses_ms_.push_back(ended->pause_ms.value_or(0));
    std::set<std::string> said;
    for (const DemoEngine& engine : fleet_.engines) {
      if (Status ok = check_ready(engine, version); !ok) return ok;
      if (Status ok = check_text(engine, version, said); !ok) return ok;
    }
    return {};
  }

  Status tell_engine(const DemoEngine& engine, const std::string& method, const std::string& body) {
    client::Exchange exchange;
    const HttpResult result =
        exchange.send(engine.url, HttpRequest{method, "/_tiny/faults", {{"Content-Type", "application/json"}}, body},
                      Milliseconds(5000));
    const auto* response = std::get_if<HttpResponse>(&result);
    return promise(response && response->status < 300,
                   fmt::format("{} didn't take the injected failure", engine.url.text));
  }

  Status refused_update() {
    const DemoEngine& refusing = fleet_.engines.at(kRefusingEngine);
    say(fmt::format("\n-- now {} will refuse every load --\n", refusing.url.text));
    const std::string fault = R"({"route":"/update_weights_from_disk","fault":"status_400","times":-1,)"
                              R"("message":"Failed to update weights: out of memory (injected by the demo)."})";
    if (Status ok = tell_engine(refusing, "POST", fault); !ok) return ok;
    Result<client::Update> ended = update(kRefusedVersion);
    if (!ended) return std::move(ended).error();
    if (Status ok = promise(ended->state == "degraded",
                            fmt::format("v{} ended as {}, not degraded", kRefusedVersion, ended->state));
        !ok)
      return ok;
    std::set<std::string> said;
    for (std::size_t i = 0; i < fleet_.engines.size(); ++i) {
      if (i == kRefusingEngine) continue;
      if (Status ok = check_ready(fleet_.engines[i], kRefusedVersion); !ok) return ok;
      if (Status ok = check_text(fleet_.engines[i], kRefusedVersion, said); !ok) return ok;
    }
    return check_explained(refusing);
  }

  // The engine that refused is out of traffic, and its cause is told.
  Status check_explained(const DemoEngine& refusing) {
    Result<std::vector<client::Worker>> workers = gateway_.workers(kPair);
    if (!workers) return std::move(workers).error();
    for (const client::Worker& worker : *workers) {
      if (worker.url != refusing.url.text) continue;
      if (Status ok = promise(worker.state != "ready" && worker.cause && !worker.cause->message.empty(),
                              fmt::format("{} is {} without a cause", worker.url, worker.state));
          !ok)
        return ok;
      say(fmt::format("  {:<7} {}  {} ({}): routers are told 503 by its readiness URL\n", refusing.dialect, worker.url,
                      worker.state, worker.cause->code));
    }
    client::Exchange exchange;
    const HttpResult ready = exchange.send(refusing.readiness, HttpRequest{"GET", "", {}, ""}, Milliseconds(5000));
    const auto* response = std::get_if<HttpResponse>(&ready);
    return promise(response && response->status == 503,
                   fmt::format("the readiness URL of {} doesn't say 503", refusing.url.text));
  }

  Status healed_update() {
    const DemoEngine& healed = fleet_.engines.at(kRefusingEngine);
    say(fmt::format("\n-- now {} takes weights again --\n", healed.url.text));
    if (Status ok = tell_engine(healed, "DELETE", ""); !ok) return ok;
    return good_update(kLastVersion);
  }

  Status summary() {
    const RolloutCounts counts = rollouts_->counts();
    rollouts_.reset();
    std::string pauses;
    for (const std::int64_t pause_ms : pauses_ms_)
      pauses += fmt::format("{}{}", pauses.empty() ? "" : ", ", duration_text(pause_ms));
    say(fmt::format("\n{} updates committed on {} engines; pauses: {}\n", kLastVersion, fleet_.engines.size(), pauses));
    say(fmt::format(
        "meanwhile {} generations completed, {} were cut short by a pause, {} failed; the slowest took {}\n",
        counts.completed, counts.cut_short, counts.failed, duration_text(counts.slowest_ms)));
    if (Status ok = promise(counts.failed == 0, "a generation failed: " + counts.last_failure); !ok) return ok;
    return promise(counts.completed > 0, "nothing was generated");
  }

  DemoFleet& fleet_;
  Terminal& terminal_;
  client::Client gateway_;
  std::unique_ptr<Rollouts> rollouts_;
  std::map<std::string, std::string> texts_;
  std::vector<std::int64_t> pauses_ms_;
};

std::string programs_beside_us() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

void wait_for_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  int which = 0;
  sigwait(&signals, &which);
}

}  // namespace

int run_demo(const DemoArguments& arguments, Terminal& terminal) {
  const std::string programs = arguments.programs.empty() ? programs_beside_us() : arguments.programs;
  Result<DemoFleet> fleet =
      DemoFleet::start(programs, [&](const std::string& text) { terminal.out << text << std::flush; });
  if (!fleet) return report(terminal, fleet.error(), false);
  Status done = Demo(*fleet, terminal).run();
  if (!done) terminal.err << fleet->logs();
  if (done && arguments.stay) {
    terminal.out << fmt::format("\nstaying up; try\n  {}/weighlock status --gateway {}\n", programs,
                                fleet->gateway.text);
    for (const DemoEngine& engine : fleet->engines)
      terminal.out << fmt::format("  {} engine {}\n", engine.dialect, engine.url.text);
    terminal.out << "Ctrl-C ends it\n" << std::flush;
    wait_for_signal();
  }
  Status stopped = fleet->stop();
  if (!done) return report(terminal, done.error(), false);
  if (!stopped) return report(terminal, stopped.error(), false);
  terminal.out << "the demo ended as promised\n";
  return 0;
}

}  // namespace weighlock::cli
