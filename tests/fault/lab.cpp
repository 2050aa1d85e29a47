#include "lab.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <utility>

#include "at_rest.hpp"

namespace weighlock::fault {
namespace {

constexpr const char* kKey = "gateway-key";

void run_on(Loop& loop, const std::function<void()>& work) {
  std::promise<void> done;
  loop.post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace

json::object patient_deadlines() {
  return {{"save", 30'000},   {"pause", 20'000}, {"load", 20'000},
          {"verify", 20'000}, {"resume", 4'000}, {"restore", 6'000}};
}

json::object tight_deadlines(bool tight_save) {
  return {{"save", tight_save ? 2'000 : 20'000},
          {"pause", 1'500},
          {"load", 1'500},
          {"verify", 1'500},
          {"resume", 4'000},
          {"restore", 6'000}};
}

std::string text_at(const json::value& value, std::string_view key) {
  return std::string(find_string(value, key).value_or(""));
}

Lab::Lab(GatewaySettings settings)
    : start_directory_(root_.path("start")), peers_(std::make_unique<Loop>()), loop_(std::make_unique<Loop>()) {
  write_single(start_directory_);
  settings.admin_api_key = kKey;
  peers_->after(Milliseconds(3'600'000), [] {});  // keeps run() from ending while nobody listens
  loop_->after(Milliseconds(3'600'000), [] {});
  auto made = Gateway::make(*loop_, std::move(settings));
  if (!made) {
    ADD_FAILURE() << made.error().text();
    return;
  }
  gateway_ = *std::move(made);
  EXPECT_TRUE(gateway_->listen());
  port_ = gateway_->port();
  peers_thread_ = std::thread([this] { peers_->run(); });
  thread_ = std::thread([this] { loop_->run(); });
}

Lab::~Lab() {
  run_on(*loop_, [this] { gateway_.reset(); });
  loop_->stop();
  peers_->stop();
  thread_.join();
  peers_thread_.join();
}

test::Reply Lab::call(const std::string& method, const std::string& target, const json::value& body) const {
  test::Connection connection(port_);
  if (!connection.connected()) return {};
  connection.send_request(method, target, {{"Authorization", std::string("Bearer ") + kKey}},
                          body.is_null() ? "" : json::serialize(body));
  return connection.read_reply();
}

void Lab::on_peers(const std::function<void()>& work) const {
  run_on(*peers_, work);
}

bool Lab::stop_gateway() {
  std::promise<bool> stopped;
  run_on(*loop_, [&] { gateway_->stop([&](bool clean) { stopped.set_value(clean); }); });
  return stopped.get_future().get();
}

Fleet::Fleet(Lab& lab, Shape shape) : lab_(lab), shape_(std::move(shape)), save_path_(lab.directory(shape_.pair)) {
  std::filesystem::create_directories(save_path_);
  lab_.on_peers([this] {
    for (int i = 0; i < shape_.engines; ++i)
      engines_.push_back(make_engine(shape_.dialect, lab_.peers_loop(), lab_.start_directory()));
    for (int i = 0; i < shape_.trainers; ++i)
      trainers_.push_back(std::make_unique<TrainerImposter>(lab_.peers_loop(), i == 0));
  });
}

Fleet::~Fleet() {
  lab_.on_peers([this] {
    for (const auto& engine : engines_) engine->calm();
    for (const auto& trainer : trainers_) trainer->calm();
  });
  lab_.call("DELETE", "/v1/pairs/" + shape_.pair);
  lab_.on_peers([this] {
    engines_.clear();
    trainers_.clear();
  });
  std::error_code ignored;
  std::filesystem::remove_all(
      save_path_, ignored);  // here, while other fleets wait: a slow disk takes its time for thousands of files
}

test::Reply Fleet::put(const json::object& deadlines) {
  json::array workers;
  for (const auto& engine : engines_) {
    json::object worker = shape_.worker_extra;
    worker["url"] = engine->url();
    if (!shape_.find_dialect) worker["dialect"] = weighlock::name(shape_.dialect);
    workers.push_back(std::move(worker));
  }
  json::array ranks;
  for (const auto& trainer : trainers_) ranks.push_back(json::string(trainer->url()));
  json::object settings = shape_.settings;
  settings["deadlines_ms"] = deadlines;
  return lab_.call("PUT", "/v1/pairs/" + shape_.pair,
                   {{"mode", "disk"},
                    {"save_path", save_path_},
                    {"trainers", {{"kind", "areal"}, {"urls", ranks}}},
                    {"workers", workers},
                    {"settings", settings}});
}

json::value Fleet::update(std::int64_t version, int wait_s) {
  const std::string wait = "?wait=" + std::to_string(wait_s);
  return lab_.call("POST", "/v1/pairs/" + shape_.pair + "/updates" + wait, {{"version", version}}).json();
}

test::Reply Fleet::compat_update(std::int64_t version) {
  return lab_.call("POST", "/update_weights", {{"pair_name", shape_.pair}, {"version", version}});
}

json::value Fleet::workers() {
  return lab_.call("GET", "/v1/pairs/" + shape_.pair + "/workers").json();
}

json::value Fleet::workers_at_rest() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    json::value all = workers();
    if (!shows_one_in_hand(json::serialize(all)) || std::chrono::steady_clock::now() > until) return all;
    std::this_thread::sleep_for(Milliseconds(5));
  }
}

json::value Fleet::worker(std::size_t index) {
  const json::value all = workers();
  const json::value* items = find(all, "items");
  for (const json::value& one : items ? items->as_array() : json::array{}) {
    if (one.at("url").as_string() == engines_[index]->url()) return one;
  }
  return nullptr;
}

std::string Fleet::state(std::size_t index) {
  return text_at(worker(index), "state");
}

json::value Fleet::pair() {
  return lab_.call("GET", "/v1/pairs/" + shape_.pair).json();
}

void Fleet::judge_worker(std::size_t index, const json::value& view, const json::value& pair_view,
                         std::vector<std::string>& out) {
  const EngineImposter& real = *engines_[index];
  const std::string state = text_at(view, "state");
  const std::string who = "engine " + std::to_string(index) + " (" + state + "): ";
  const json::value* committed = find(pair_view, "committed");
  if (state == "ready") {
    if (real.paused) out.push_back(who + "is left paused");
    if (real.torn) out.push_back(who + "serves torn weights");
    if (committed && committed->is_int64()) {
      const std::int64_t version = committed->get_int64();
      if (find_int(view, "version") != version)
        out.push_back(who + "is said to be at " + json::serialize(view.at("version")));
      if (!real.directory.starts_with(version_directory(version))) out.push_back(who + "serves " + real.directory);
      if (real.label != std::to_string(version)) out.push_back(who + "has the label " + real.label);
    } else if (real.directory != lab_.start_directory()) {
      out.push_back(who + "serves " + real.directory + " though nothing is committed");
    }
  } else if (state == "quarantined") {
    const json::value* cause = find(view, "cause");
    if (!cause || text_at(*cause, "message").empty() || text_at(*cause, "code").empty())
      out.push_back(who + "has no cause");
    if (real.torn && !real.paused) out.push_back(who + "runs on torn weights");
  } else {
    out.push_back(who + "is in a state where nobody rests");
  }
}

std::vector<std::string> Fleet::problems() {
  std::vector<std::string> out;
  const json::value views = workers_at_rest();
  const json::value pair_view = pair();
  lab_.on_peers([&] {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      for (const std::string& one : engines_[i]->violations) out.push_back("engine " + std::to_string(i) + ": " + one);
      const json::value* items = find(views, "items");
      for (const json::value& view : items ? items->as_array() : json::array{}) {
        if (view.at("url").as_string() == engines_[i]->url()) judge_worker(i, view, pair_view, out);
      }
    }
    for (const auto& trainer : trainers_) out.insert(out.end(), trainer->violations.begin(), trainer->violations.end());
  });
  return out;
}

}  // namespace weighlock::fault
