// vLLM's routes that load and unload LoRA adapters, and the cache of those that the worker has at hand.
#include <fmt/format.h>

#include <algorithm>

#include "tinyengine/engine/vllm_front.hpp"

namespace weighlock::tiny {
namespace {

std::string add_lora_failed(std::string_view text) {
  return fmt::format("Call to add_lora method failed: {}", text);
}

// In the order in which vLLM looks.
HttpResponse refusal_of(const std::string& name, const std::string& directory, const AdapterContent& content,
                        std::size_t rank_max) {
  using Kind = AdapterFailure::Kind;
  const bool failed = content.adapter == nullptr;
  if (failed && (content.failure.kind == Kind::missing_directory || content.failure.kind == Kind::no_config))
    return vllm_error(404, fmt::format("Loading lora {} failed: No adapter found for {}", name, directory));
  if (failed && content.failure.kind == Kind::bad_config) return vllm_error(500, add_lora_failed(content.failure.text));
  const AdapterConfig& config = content.config;
  if (config.rank > rank_max) {
    return vllm_error(
        500, add_lora_failed(fmt::format("LoRA rank {} is greater than max_lora_rank {}.", config.rank, rank_max)));
  }
  if (config.dora) return vllm_error(500, add_lora_failed("vLLM does not yet support DoRA."));
  if (!config.modules_to_save.empty()) {
    return vllm_error(
        500, add_lora_failed(fmt::format("vLLM only supports modules_to_save being either None or [\"classifier\", "
                                         "\"score\"] for classification models. Unsupported modules_to_save: ['{}']",
                                         fmt::join(config.modules_to_save, "', '"))));
  }
  if (failed && content.failure.kind == Kind::no_weights)
    return vllm_error(500, add_lora_failed("<path> doesn't contain tensors"));
  if (failed) {
    return vllm_error(500, add_lora_failed("Error while deserializing header: incomplete metadata, file not fully "
                                           "covered"));
  }
  return {};
}

}  // namespace

Status VllmFront::start() {
  for (const auto& [name, directory] : context_.settings.adapters.at_start) {
    const AdapterContent content = load_adapter(directory, context_.core->model()->shape(), AdapterNames::exact, false);
    if (!content.adapter)
      return Error{ErrorCode::checkpoint_invalid, fmt::format("adapter '{}': {}", name, content.failure.text)};
    serve_adapter(std::make_shared<const ServedAdapter>(ServedAdapter{name, directory, content.adapter}));
  }
  return {};
}

json::object VllmFront::adapters() const {
  json::object all;
  for (const auto& adapter : adapters_) all[adapter->name] = adapter->directory;
  return all;
}

std::shared_ptr<const ServedAdapter> VllmFront::adapter_named(std::string_view name) const {
  const auto at = std::find_if(adapters_.begin(), adapters_.end(), [&](const auto& one) { return one->name == name; });
  return at == adapters_.end() ? nullptr : *at;
}

void VllmFront::serve_adapter(const std::shared_ptr<const ServedAdapter>& adapter) {
  const auto same = [&](const auto& one) { return one->name == adapter->name; };
  const auto at = std::find_if(adapters_.begin(), adapters_.end(), same);
  if (at == adapters_.end()) {
    adapters_.push_back(adapter);
  } else {
    *at = adapter;
  }
  std::erase_if(cached_, same);
  cached_.push_back(adapter);
  const std::size_t cached_max = context_.settings.adapters.cached_max;
  if (cached_max > 0 && cached_.size() > cached_max) cached_.pop_front();
}

void VllmFront::load_lora(const Call& call, const Reply& reply) {
  auto body = parse_json(call.request.body, "request body");
  const auto name = body ? find_string(*body, "lora_name") : std::nullopt;
  const auto path = body ? find_string(*body, "lora_path") : std::nullopt;
  if (!name || !path) {
    reply.send(vllm_error(400, "1 validation error:\n  {'type': 'missing', 'loc': 'body.lora_path'}", "Bad Request",
                          "body.lora_path"));
    return;
  }
  const bool in_place = find_bool(*body, "load_inplace").value_or(false);
  take_turn(*name,
            [weak = weak_from_this(), call, name = std::string(*name), path = std::string(*path), in_place, reply] {
              if (const auto front = weak.lock()) front->load_lora_in_turn(call, name, path, in_place, reply);
            });
}

void VllmFront::load_lora_in_turn(const Call& call, const std::string& name, const std::string& path, bool in_place,
                                  const Reply& reply) {
  const auto refuse = [&](HttpResponse response) {
    end_turn(name);
    reply.send(std::move(response));
  };
  constexpr std::string_view kInvalid = "InvalidUserInput";
  if (name.empty()) return refuse(vllm_error(400, "Both 'lora_name' and 'lora_path' must be provided.", kInvalid));
  if (name == model_name()) {
    return refuse(
        vllm_error(400, fmt::format("The lora adapter '{}' conflicts with a served base model.", name), kInvalid));
  }
  if (!in_place && adapter_named(name)) {
    return refuse(vllm_error(400,
                             fmt::format("The lora adapter '{}' has already been loaded. If you want to load the "
                                         "adapter in place, set 'load_inplace' to True.",
                                         name),
                             kInvalid));
  }
  const auto dropped = [front = self(), name, reply] {
    reply.send(front->dead_answer(""));
    front->notice_death();
  };
  read_adapter_in_core(
      call.load_delay, path, call.partial_load,
      [front = self(), name, path, reply](const AdapterContent& content) {
        const std::size_t rank_max = front->context_.settings.adapters.rank_max;
        HttpResponse response =
            rank_max > 0 ? refusal_of(name, path, content, rank_max)
                         : vllm_error(500, add_lora_failed("LoRA is not enabled. Use --enable-lora to enable LoRA."));
        front->end_turn(name);
        if (response.status >= 400) {
          reply.send(std::move(response));
          return;
        }
        front->serve_adapter(std::make_shared<const ServedAdapter>(ServedAdapter{name, path, content.adapter}));
        reply.send_text(200, fmt::format("Success: LoRA adapter '{}' added successfully.", name));
      },
      dropped);
}

void VllmFront::unload_lora(const Call& call, const Reply& reply) {
  auto body = parse_json(call.request.body, "request body");
  const auto name = body ? find_string(*body, "lora_name") : std::nullopt;
  if (!name) {
    reply.send(vllm_error(400, "1 validation error:\n  {'type': 'missing', 'loc': 'body.lora_name'}", "Bad Request",
                          "body.lora_name"));
    return;
  }
  // The HTTP process alone: nobody waits for requests that use it, and the worker keeps what it has.
  take_turn(*name, [weak = weak_from_this(), name = std::string(*name), reply] {
    const auto front = weak.lock();
    if (!front) return;
    const auto adapter = front->adapter_named(name);
    front->end_turn(name);
    if (!adapter) {
      reply.send(vllm_error(404, fmt::format("The lora adapter '{}' cannot be found.", name)));
      return;
    }
    std::erase(front->adapters_, adapter);
    reply.send_text(200, fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
  });
}

// One change of a name at a time, in the order in which they came.
void VllmFront::take_turn(std::string_view name, std::function<void()> job) {
  const auto [turns, first] = adapter_turns_.try_emplace(std::string(name));
  if (first) {
    job();
  } else {
    turns->second.push_back(std::move(job));
  }
}

void VllmFront::end_turn(const std::string& name) {
  const auto turns = adapter_turns_.find(name);
  if (turns->second.empty()) {
    adapter_turns_.erase(turns);
    return;
  }
  context_.loop.post(std::move(turns->second.front()));
  turns->second.pop_front();
}

void VllmFront::read_adapter_in_core(Milliseconds delay, const std::string& directory, bool partial,
                                     std::function<void(const AdapterContent&)> then, std::function<void()> dropped) {
  Core& core = *context_.core;
  core.submit(
      [&core, delay, directory, partial, then = std::move(then)](Core::Done done) {
        const auto content = std::make_shared<AdapterContent>();
        core.run(
            delay,
            [content, directory, partial, shape = core.model()->shape()] {
              *content = load_adapter(directory, shape, AdapterNames::exact, partial);
            },
            [content, then, done] {
              done();
              then(*content);
            });
      },
      std::move(dropped));
}

// What isn't in the worker's cache is read again from its directory, and if that is gone the engine core dies.
void VllmFront::with_adapter(const std::shared_ptr<const ServedAdapter>& adapter, const Reply& reply,
                             std::function<void(std::shared_ptr<const ServedAdapter>)> then) {
  const auto cached = std::find(cached_.begin(), cached_.end(), adapter);
  if (cached != cached_.end()) {
    cached_.erase(cached);
    cached_.push_back(adapter);
    then(adapter);
    return;
  }
  read_adapter_in_core(
      Milliseconds{0}, adapter->directory, false,
      [front = self(), adapter, reply, then](const AdapterContent& content) {
        if (!content.adapter) {
          reply.send(front->dead_answer(""));
          front->core_killed();
          return;
        }
        const auto again =
            std::make_shared<const ServedAdapter>(ServedAdapter{adapter->name, adapter->directory, content.adapter});
        front->serve_adapter(again);
        then(again);
      },
      [front = self(), reply] {
        reply.send(front->dead_answer(""));
        front->notice_death();
      });
}

}  // namespace weighlock::tiny
