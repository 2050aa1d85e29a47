// SGLang 0.5.23 as it was measured (contracts/sglang.md): the HTTP process around the scheduler.
//
// The HTTP process keeps the pause flag, the labels that /model_info tells, and a lock between requests and updates: an
// update outside a pause waits for running requests while new ones queue behind it. All else asks the core.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "tinyengine/engine/completions.hpp"
#include "tinyengine/engine/front.hpp"
#include "tinyengine/engine/sglang_adapters.hpp"

namespace weighlock::tiny {

class SglangFront final : public Front, public std::enable_shared_from_this<SglangFront> {
 public:
  explicit SglangFront(FrontContext context);
  ~SglangFront() override { adapters_->close(); }

  Status start() override { return adapters_->load_at_start(); }
  void handle(Call call, Reply reply) override;
  bool is_load(const Call& call) const override {
    return call.path == "/update_weights_from_disk" || call.path == "/load_lora_adapter";
  }
  json::object adapters() const override;
  void core_killed() override;
  bool paused() const override { return paused_; }
  std::string told_label() const override { return label_; }
  std::string told_directory() const override { return directory_; }
  HttpResponse failure(std::string_view path, int status, const std::string& message) const override;
  HttpResponse refusal(std::string_view path, const std::string& message) const override;

 private:
  enum class Access { open, normal, control };
  using Member = void (SglangFront::*)(const Call&, const json::value& body, const Reply&);
  struct Route {
    std::string_view path;
    std::string_view methods;  // "GET POST"
    Access access;
    bool body_required;
    Member member;
  };
  static const std::vector<Route>& routes();
  bool allowed(const Call& call, Access access) const;

  // sglang_front.cpp: pause, update, flush
  void pause(const Call&, const json::value& body, const Reply&);
  void resume(const Call&, const json::value& body, const Reply&);
  void update_from_disk(const Call&, const json::value& body, const Reply&);
  void update_label(const Call&, const json::value& body, const Reply&);
  void flush(const Call&, const json::value& body, const Reply&);
  void abort_request(const Call&, const json::value& body, const Reply&);
  void await_idle(std::uint64_t pause, const Reply& reply);
  void abort_soon();
  void submit_abort();  // of what has arrived by now
  void when_abort_is_done(std::function<void()> then);
  void run_writer();
  void load(const Call& call, const json::value& body, const Reply& reply, std::function<void()> finished);
  void loaded(const json::value& body, const LoadReport& report, const Reply& reply);
  void flush_when_idle(Instant deadline, const Reply& reply);
  void scheduler_died(Milliseconds until_closed);

  // sglang_lora.cpp
  void load_lora(const Call&, const json::value& body, const Reply&);
  void unload_lora(const Call&, const json::value& body, const Reply&);
  void answer_adapter_change(const SglangAdapters::Outcome& outcome, const Reply& reply);

  // sglang_reads.cpp: what is asked without changing anything
  void health(const Call&, const json::value& body, const Reply&);
  void ready(const Call&, const json::value& body, const Reply&);
  void model_info(const Call&, const json::value& body, const Reply&);
  void models(const Call&, const json::value& body, const Reply&);
  void server_info(const Call&, const json::value& body, const Reply&);
  void loads(const Call&, const json::value& body, const Reply&);
  void weights_by_name(const Call&, const json::value& body, const Reply&);
  void weights_checker(const Call&, const json::value& body, const Reply&);
  void check_health(Instant deadline, const std::shared_ptr<bool>& answered, const Reply& reply);

  // sglang_generate.cpp
  void generate(const Call&, const json::value& body, const Reply&);
  void completions(const Call&, const json::value& body, const Reply&);
  void serve_text(TextRequest request, const Reply& reply, bool openai);
  void stream_text(const std::shared_ptr<Generation>& generation, const std::shared_ptr<TextRequest>& request,
                   const Reply& reply, bool openai);
  void abandon(const std::weak_ptr<Generation>& generation);
  // A request on its way into the scheduler; refused there if there is no such adapter.
  struct Entrant {
    std::shared_ptr<Generation> generation;
    std::string adapter;
    std::function<void(const std::string& why)> refuse;
  };
  void enter(Entrant entrant);  // at once, or when pause and updates let it
  void admit(const Entrant& entrant);
  void admit_blocked();
  void leave();  // a request has ended

  // Asks the scheduler; the reply is held if it dies first, until its connection is closed.
  void ask_core(const Reply& reply, std::function<void()> work);
  void hold(const Reply& reply) { held_.push_back(reply); }
  std::shared_ptr<SglangFront> self() { return shared_from_this(); }

  FrontContext context_;
  std::shared_ptr<SglangAdapters> adapters_;
  bool paused_ = false;
  std::uint64_t resumes_ = 0;  // a pause ends with the next of them, also for whom it still waits
  // An abort pause ends running requests a while after it was sent; a load that comes in between waits for that, inside
  // the scheduler.
  std::uint64_t abort_limit_ = 0;  // Core::arrivals() at the latest abort
  bool abort_pending_ = false;
  std::vector<std::function<void()>> after_abort_;  // the load that waits, in its turn: the core does nothing else
  bool unhealthy_ = false;
  bool flushing_ = false;
  std::string label_ = "default";
  std::string directory_;
  std::string served_name_;
  json::value load_format_ = "auto";
  std::size_t readers_ = 0;  // requests inside the scheduler
  bool writing_ = false;
  std::deque<std::function<void()>> writers_;
  std::deque<Entrant> blocked_;
  std::map<std::string, std::weak_ptr<Generation>> known_;  // by request id
  std::uint64_t next_id_ = 0;
  std::vector<Reply> held_;
};

// The answer to a load or unload of an adapter; "" is success.
json::object adapter_answer(const std::string& error, const json::value& loaded);

// {"object":"error", ...}: every validation error of SGLang.
HttpResponse sglang_error(const std::string& message);

}  // namespace weighlock::tiny
