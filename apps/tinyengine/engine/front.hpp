// The HTTP face of an engine: what SGLang's and vLLM's server processes do around the core.
//
// A front lives as long as its core. Thread rule: loop thread only. Fronts are held by shared_ptr, because answers come
// later.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tinyengine/engine/core.hpp"
#include "tinyengine/engine/reply.hpp"
#include "tinyengine/engine/request_log.hpp"
#include "tinyengine/engine/settings.hpp"

namespace weighlock::tiny {

// What a front is given by its engine.
struct FrontContext {
  Loop& loop;
  std::shared_ptr<Core> core;
  EngineSettings settings;
  double start_time = 0.0;                // seconds since 1970
  RequestLog& log;                        // outlives the front
  std::function<void(Milliseconds)> die;  // close the port and all connections after so long
};

// One request, with what an injected fault changes inside the engine.
struct Call {
  HttpRequest request;
  std::string path;
  std::string query;  // without the '?'
  std::uint64_t log_number = 0;
  Milliseconds load_delay{0};
  bool partial_load = false;
  bool half_unload = false;
};

class Front {
 public:
  virtual ~Front() = default;
  // Once, before the first call: the adapters of the start.
  virtual Status start() = 0;
  virtual void handle(Call call, Reply reply) = 0;
  virtual bool is_load(const Call& call) const = 0;  // of a model or of an adapter
  virtual bool paused() const = 0;
  // The process that computes was killed by a signal; the HTTP process finds out in its own time.
  virtual void core_killed() = 0;
  // The label and directory that the engine tells; SGLang's can differ from what it serves.
  virtual std::string told_label() const = 0;
  virtual std::string told_directory() const = 0;
  // By name, those that requests may ask for: what each came from.
  virtual json::object adapters() const = 0;
  // In the dialect's words.
  virtual HttpResponse failure(std::string_view path, int status, const std::string& message) const = 0;
  virtual HttpResponse refusal(std::string_view path, const std::string& message) const = 0;  // 200 with success false
};

std::shared_ptr<Front> make_sglang_front(FrontContext context);
std::shared_ptr<Front> make_vllm_front(FrontContext context);

// "Bearer KEY" (the scheme in any case) in the Authorization header.
bool has_bearer(const HttpRequest& request, std::string_view key);
// The value of a query parameter, percent-decoded as far as the control routes need.
std::optional<std::string> query_value(std::string_view query, std::string_view name);
// True for "1", "true", "yes", "on" in any case.
bool query_flag(std::string_view query, std::string_view name, bool fallback);

// An adapter read as an engine reads it; `partial` leaves half of its modules out.
AdapterContent load_adapter(const std::string& directory, const ModelShape& shape, AdapterNames names, bool partial);

// A loader for Core::load.
Core::Loader make_loader(DialectKind dialect, LoadRequest request);

}  // namespace weighlock::tiny
