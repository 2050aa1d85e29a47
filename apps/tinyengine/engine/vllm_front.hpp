// vLLM 0.32.0 in developer mode as it was measured (contracts/vllm.md): an HTTP process around a serial engine core.
//
// Nearly every control call goes through the core's queue, so it waits behind a running load, and an abandoned one
// still runs in its turn. A failed reload is not noticed until the first request, which kills the core.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <vector>

#include "tinyengine/engine/completions.hpp"
#include "tinyengine/engine/front.hpp"

namespace weighlock::tiny {

class VllmFront final : public Front, public std::enable_shared_from_this<VllmFront> {
 public:
  explicit VllmFront(FrontContext context);

  Status start() override;
  void handle(Call call, Reply reply) override;
  bool is_load(const Call& call) const override {
    return call.path == "/collective_rpc" || call.path == "/v1/load_lora_adapter";
  }
  json::object adapters() const override;
  void core_killed() override;
  bool paused() const override { return context_.core->hold() != Hold::none; }
  std::string told_label() const override { return context_.core->label(); }
  std::string told_directory() const override { return context_.settings.model_directory; }
  HttpResponse failure(std::string_view path, int status, const std::string& message) const override;
  HttpResponse refusal(std::string_view path, const std::string& message) const override;

 private:
  using Member = void (VllmFront::*)(const Call&, const Reply&);
  struct Route {
    std::string_view path;
    std::string_view method;
    Member member;
  };
  static const std::vector<Route>& routes();

  // vllm_front.cpp
  void health(const Call&, const Reply&);
  void version(const Call&, const Reply&);
  void weight_info(const Call&, const Reply&);
  void is_paused(const Call&, const Reply&);
  void is_sleeping(const Call&, const Reply&);
  void metrics(const Call&, const Reply&);
  void world_size(const Call&, const Reply&);
  void load_count(const Call&, const Reply&);
  void pause(const Call&, const Reply&);
  void resume(const Call&, const Reply&);
  void update_label(const Call&, const Reply&);
  void reset_prefix_cache(const Call&, const Reply&);
  void abort_requests(const Call&, const Reply&);
  void server_info(const Call&, const Reply&);
  // `arrived`: Core::arrivals() when the pause was sent.
  void pause_now(const std::string& mode, bool clear, std::uint64_t arrived, const Reply& reply);

  // vllm_weights.cpp
  void collective_rpc(const Call&, const Reply&);
  void reload(const Call& call, const json::value& body, const Reply& reply);
  void run_reload(const Call& call, const std::string& directory, const Reply& reply, Core::Done done);
  void reloaded(const LoadReport& report, const Reply& reply);
  void weight_checker(const Call&, const Reply&);
  void check_weights(const std::string& action, const json::value& baseline, const Reply& reply);
  void destroy_weights(const Reply& reply);

  // vllm_lora.cpp
  void load_lora(const Call&, const Reply&);
  void load_lora_in_turn(const Call& call, const std::string& name, const std::string& path, bool in_place,
                         const Reply& reply);
  void unload_lora(const Call&, const Reply&);
  void take_turn(std::string_view name, std::function<void()> job);
  void end_turn(const std::string& name);
  void read_adapter_in_core(Milliseconds delay, const std::string& directory, bool partial,
                            std::function<void(const AdapterContent&)> then, std::function<void()> dropped);
  std::shared_ptr<const ServedAdapter> adapter_named(std::string_view name) const;
  void serve_adapter(const std::shared_ptr<const ServedAdapter>& adapter);
  void with_adapter(const std::shared_ptr<const ServedAdapter>& adapter, const Reply& reply,
                    std::function<void(std::shared_ptr<const ServedAdapter>)> then);

  // vllm_generate.cpp
  void models(const Call&, const Reply&);
  void completions(const Call&, const Reply&);
  void serve_text(TextRequest request, const Reply& reply);

  // Asks the core; if it is dead, or dies first, the answer is `dead_answer`.
  void ask_core(const Reply& reply, std::function<void()> work, std::string_view failed_to = "");
  HttpResponse dead_answer(std::string_view failed_to) const;
  void notice_death();
  const std::string& model_name() const;
  std::shared_ptr<VllmFront> self() { return shared_from_this(); }

  FrontContext context_;
  std::vector<std::shared_ptr<const ServedAdapter>> adapters_;              // as they were loaded
  std::list<std::shared_ptr<const ServedAdapter>> cached_;                  // the least recently used first
  std::map<std::string, std::deque<std::function<void()>>> adapter_turns_;  // by name: a change is under way
  std::string last_directory_;                                              // what a reload without a path reads
  bool replies_shifted_ = false;                                            // after a "timeout" that expired
  bool death_noticed_ = false;
  std::uint64_t next_id_ = 0;
};

// {"error":{"message","type","param","code"}}
HttpResponse vllm_error(int status, const std::string& message, std::string_view type = "",
                        const json::value& param = nullptr);

}  // namespace weighlock::tiny
