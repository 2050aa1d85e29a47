// The ranks of a small trainer, one URL each, that speak AReaL's training worker API (contracts/areal.md 2.1).
//
// POST /save is a collective: nobody writes or answers before every rank was called. Each rank writes its own shard,
// rank 0 the index and the model files too (or, of adapters, rank 0 all); a last barrier lets all answer together. A
// rank that fails leaves the others waiting, as AReaL's do, until `collective_timeout`. A caller that gives up cancels
// nothing.
//
//   GET  /health, /topology     POST /set_version, /step {"count":1}
//   POST /_tiny/faults, DELETE /_tiny/faults    of this rank (rank_fault.hpp)
//   GET  /_tiny/log, /_tiny/state               DELETE /_tiny/log
//
// Thread rule: loop thread only; files are written on the pool. `loop` and `pool` must outlive it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinyengine/engine/request_log.hpp"
#include "tinyengine/model/adapter.hpp"
#include "tinytrainer/rank_fault.hpp"
#include "tinytrainer/trained_model.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock::tiny {

struct TrainerSettings {
  // Which calls of the ranks belong together: those with one path; or simply each rank's oldest, as AReaL's do, so that
  // ranks which are off by one call write into each other's directories.
  enum class Pairing { path, call };

  std::size_t ranks = 2;
  std::string host = "127.0.0.1";
  int port = 0;  // of rank 0; rank r has port + r. 0: any free ones
  ModelShape shape;
  std::uint64_t seed = 1;
  double step_scale = 1.0;
  bool step_on_save = true;  // train one step before each collective save
  Pairing pairing = Pairing::path;
  Milliseconds collective_timeout{0};  // 0: for ever
  // Saves are LoRA adapters of this kind, written by rank 0 alone; none: whole models.
  std::optional<AdapterConfig> adapter = std::nullopt;
};

class Trainer {
 public:
  Trainer(Loop& loop, Pool& pool, TrainerSettings settings);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Status start();
  int port(std::size_t rank) const { return ranks_[rank]->port; }
  std::string url(std::size_t rank) const;
  std::size_t size() const { return ranks_.size(); }
  const TrainedModel& model() const { return model_; }
  void add_fault(std::size_t rank, RankFault fault);

 private:
  struct Save;
  struct Collective;
  struct Rank {
    std::unique_ptr<HttpServer> server;
    int port = 0;
    RequestLog log;
    std::vector<RankFault> faults;
    std::deque<std::shared_ptr<Save>> waiting;                // in the collective's first barrier
    int saving = 0;                                           // saves that its engine isn't out of
    std::vector<std::pair<std::uint64_t, Responder>> queued;  // what its engine does after them, by number in the log
  };

  Status listen(std::size_t rank);
  void refuse(std::size_t rank, Milliseconds how_long);
  void handle(std::size_t rank, HttpRequest request, Responder responder);
  void handle_tiny(std::size_t rank, const std::string& action, const HttpRequest& request, const Responder& responder);
  void save(std::size_t rank, std::uint64_t number, const HttpRequest& request, const Responder& responder);
  bool fails_at_once(std::size_t rank, std::uint64_t number, const RankFault& fault, const Responder& responder);
  std::optional<RankFault> take_fault(std::size_t rank);
  void enter(std::shared_ptr<Save> entry);
  void start_collectives();
  std::optional<std::vector<std::shared_ptr<Save>>> next_group();
  void write_all(std::vector<std::shared_ptr<Save>> group);
  std::function<Status()> writer(const Save& entry, const std::shared_ptr<Collective>& collective) const;
  void wrote(const std::shared_ptr<Collective>& collective, const std::shared_ptr<Save>& entry, const Status& status);
  void left_save(std::size_t rank);
  void answer_queued(std::size_t rank);
  void answer(const Save& entry, HttpResponse response);
  void answer_saved(const Save& entry);

  Loop& loop_;
  Pool& pool_;
  TrainerSettings settings_;
  TrainedModel model_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint64_t saves_ = 0;
  bool writing_ = false;
  std::shared_ptr<int> token_ = std::make_shared<int>(0);  // expires with the trainer: posted work checks it
};

}  // namespace weighlock::tiny
