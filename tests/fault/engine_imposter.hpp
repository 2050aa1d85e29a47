// Imposters of SGLang and vLLM: the control routes of a disk update, with the literal bodies of the released engines.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "imposter.hpp"
#include "weighlock/core/operation.hpp"
#include "weights.hpp"

namespace weighlock::fault {

class EngineImposter : public Imposter {
 public:
  EngineImposter(Loop& loop, const std::string& start_directory);

  // The truth.
  std::string directory;  // what it serves
  std::string label = "default";
  bool paused = false;
  bool torn = false;  // partly loaded, or nobody knows: it must not run

  // Ways of being odd for as long as they are set.
  bool ignores_loads = false;   // says that it loaded, and keeps the weights that it had
  bool ignores_labels = false;  // ... and the label
  double startup_time = 12.5;

 protected:
  // Puts the directory's weights in place, if they can be read.
  bool take(const std::string& new_directory);
  void set_paused(bool now);
  void must_be_paused(const std::string& what);
  const Weights& weights() const { return *weights_; }
  const std::string start_directory_;

 private:
  std::unique_ptr<Weights> weights_;
};

class SglangImposter final : public EngineImposter {
 public:
  using EngineImposter::EngineImposter;

  bool stale_health = false;                // after a continue /ready stays 503 until /health was asked
  bool is_sick = false;                     // 503 to every /health
  bool refuses_bodies = false;              // 422 to every pause
  std::optional<HttpResponse> load_answer;  // instead of the right one, once; the load is done

 private:
  Action act(const Seen& request) override;
  void damage(const Seen& request, Fault fault) override;
  HttpResponse load(const Seen& request);
  HttpResponse set_label(const Seen& request);
  HttpResponse change_pause(const Seen& request, bool pause);
  bool takes_itself(const Seen& request, const Responder& responder) override;
  void end_held(const std::string& outcome);

  bool unwell_ = false;
  std::vector<Responder> held_;
};

class VllmImposter final : public EngineImposter {
 public:
  using EngineImposter::EngineImposter;

  int flush_refusals = 0;  // so many resets of the prefix cache are refused

 private:
  Action act(const Seen& request) override;
  void damage(const Seen& request, Fault fault) override;
  HttpResponse load(const Seen& request);

  bool needs_empty_ = false;  // only a load of no tensors makes the next good load possible
};

// A rank of an AReaL trainer: writes a real checkpoint where it is told to.
class TrainerImposter final : public Imposter {
 public:
  explicit TrainerImposter(Loop& loop, bool writes = true) : Imposter(loop), writes_(writes) {}

  std::function<void(const std::string& directory)> spoil;  // what becomes of the files before the answer

 private:
  Action act(const Seen& request) override;

  bool writes_;
  std::vector<std::string> directories_;
};

std::unique_ptr<EngineImposter> make_engine(DialectKind kind, Loop& loop, const std::string& start_directory);

}  // namespace weighlock::fault
