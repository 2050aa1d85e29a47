// A gateway and its peers, each on a loop of its own thread, and a fleet: one pair with its engines and trainers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine_imposter.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::fault {

// Milliseconds by phase. Patient ones are never reached, but by what is tried again until its deadline (resume,
// restore). Tight ones are for faults that last until the deadline: below Imposter::kFreeze, and wide enough for a
// crowded machine; that of the save covers the inspection too, on a disk that all cases share, and is tight only where
// the save is what fails.
json::object patient_deadlines();
json::object tight_deadlines(bool tight_save = false);

class Lab {
 public:
  explicit Lab(GatewaySettings settings = {});
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  // Safe from any thread; each call has a connection of its own.
  test::Reply call(const std::string& method, const std::string& target, const json::value& body = nullptr) const;
  // Runs `work` on the peers' loop and waits for it.
  void on_peers(const std::function<void()>& work) const;
  // Stops the gateway in order; true if all engines were left running or fenced.
  bool stop_gateway();

  std::string directory(const std::string& relative) const { return root_.path(relative); }
  const std::string& start_directory() const { return start_directory_; }
  Loop& peers_loop() const { return *peers_; }

 private:
  TemporaryDirectory root_;
  std::string start_directory_;
  std::unique_ptr<Loop> peers_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Gateway> gateway_;
  int port_ = 0;
  std::thread peers_thread_;
  std::thread thread_;
};

class Fleet {
 public:
  struct Shape {
    std::string pair;
    DialectKind dialect = DialectKind::sglang;
    int engines = 2;
    int trainers = 1;
    json::object settings;  // of the pair, but for deadlines
    bool find_dialect = false;
    json::object worker_extra;  // further members of each worker
  };

  Fleet(Lab& lab, Shape shape);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Makes the pair, or changes its settings.
  test::Reply put(const json::object& deadlines);
  // Through /v1, waiting for its end.
  json::value update(std::int64_t version, int wait_s = 60);
  // As AReaL does.
  test::Reply compat_update(std::int64_t version);
  json::value workers();
  // The same once none of them is being brought back, which begins a second after a worker was fenced; or after 10 s.
  json::value workers_at_rest();
  // The gateway's view of one engine.
  json::value worker(std::size_t index);
  std::string state(std::size_t index);
  json::value pair();

  EngineImposter& engine(std::size_t index) { return *engines_[index]; }
  SglangImposter& sglang(std::size_t index) { return static_cast<SglangImposter&>(*engines_[index]); }
  TrainerImposter& trainer(std::size_t index) { return *trainers_[index]; }
  std::size_t engines() const { return engines_.size(); }
  std::string save_path() const { return save_path_; }
  std::string version_directory(std::int64_t version) const {
    return save_path_ + "/weight_update_v" + std::to_string(version);
  }
  const std::string& name() const { return shape_.pair; }
  Lab& lab() { return lab_; }

  // What the imposters say must not have happened, and what is wrong between the gateway's view and the truth; empty if
  // all is well.
  std::vector<std::string> problems();

 private:
  void judge_worker(std::size_t index, const json::value& view, const json::value& pair_view,
                    std::vector<std::string>& out);

  Lab& lab_;
  Shape shape_;
  std::string save_path_;
  std::vector<std::unique_ptr<EngineImposter>> engines_;
  std::vector<std::unique_ptr<TrainerImposter>> trainers_;
};

std::string text_at(const json::value& value, std::string_view key);

}  // namespace weighlock::fault
