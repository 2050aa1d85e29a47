// vLLM's model list and completions.
#include <fmt/format.h>

#include <ctime>

#include "tinyengine/engine/vllm_front.hpp"

namespace weighlock::tiny {

void VllmFront::models(const Call&, const Reply& reply) {
  json::object model;
  model["id"] = model_name();
  model["object"] = "model";
  model["created"] = static_cast<std::int64_t>(std::time(nullptr));
  model["owned_by"] = "vllm";
  model["root"] = context_.settings.model_directory;  // stays the start path after every reload
  model["parent"] = nullptr;
  model["max_model_len"] = context_.core->model()->shape().positions_max;
  json::array list;
  list.push_back(std::move(model));
  for (const auto& adapter : adapters_) {
    json::object entry;
    entry["id"] = adapter->name;
    entry["object"] = "model";
    entry["created"] = static_cast<std::int64_t>(std::time(nullptr));
    entry["owned_by"] = "vllm";
    entry["root"] = adapter->directory;
    entry["parent"] = model_name();
    entry["max_model_len"] = nullptr;
    list.push_back(std::move(entry));
  }
  reply.send_json(200, json::object{{"object", "list"}, {"data", std::move(list)}});
}

void VllmFront::completions(const Call& call, const Reply& reply) {
  auto body = parse_json(call.request.body, "request body");
  if (!body) {
    reply.send(vllm_error(400, "JSON decode error: " + body.error().text()));
    return;
  }
  auto request = parse_completion(*body, context_.core->model()->shape());
  if (!request) {
    reply.send(vllm_error(400, request.error().text(), "BadRequestError"));
    return;
  }
  if (request->model.empty()) request->model = model_name();
  if (request->model == model_name()) {
    serve_text(*std::move(request), reply);
    return;
  }
  const auto adapter = adapter_named(request->model);
  if (!adapter) {
    reply.send(
        vllm_error(404, fmt::format("The model `{}` does not exist. Valid aliases: {}.", request->model, model_name()),
                   "NotFoundError", "model"));
    return;
  }
  with_adapter(adapter, reply, [weak = weak_from_this(), request = *std::move(request), reply](const auto& at_hand) {
    const auto front = weak.lock();
    if (!front) return;
    TextRequest with = request;
    with.generation.adapter = at_hand;
    front->serve_text(std::move(with), reply);
  });
}

void VllmFront::serve_text(TextRequest request, const Reply& reply) {
  request.generation.id = fmt::format("cmpl-{:032x}", next_id_++);
  const auto shared = std::make_shared<TextRequest>(std::move(request));
  auto generation = std::make_shared<Generation>();
  generation->request = shared->generation;
  if (shared->stream) {
    reply.begin_stream();
    generation->on_token = [shared, reply, sent = std::size_t{0}](const Generation& now) mutable {
      if (now.output.size() == sent) return;
      reply.event(json::serialize(completion_answer(*shared, now, std::nullopt, sent)));
      sent = now.output.size();
    };
  }
  generation->on_end = [weak = weak_from_this(), shared, reply](const Generation& ended, Finish finish) {
    const auto front = weak.lock();
    if (!front) return;
    if (finish == Finish::died) {
      reply.send(front->dead_answer(""));
      front->notice_death();
    } else if (shared->want_logprobs && has_nan(ended)) {
      reply.send(vllm_error(400, "Out of range float values are not JSON compliant", "BadRequestError"));
    } else if (!shared->stream) {
      reply.send_json(200, completion_answer(*shared, ended, finish));
    } else {
      reply.event(json::serialize(completion_answer(*shared, ended, finish, ended.output.size())));
      reply.event("[DONE]");
      reply.end_stream();
    }
  };
  reply.on_closed([weak = weak_from_this(), generation = std::weak_ptr(generation)] {
    const auto front = weak.lock();
    const auto gone = generation.lock();
    if (!front || !gone) return;
    front->context_.core->submit_quick([core = front->context_.core.get(), gone] {
      core->abort([&](const Generation& candidate) { return &candidate == gone.get(); });
    });
  });
  context_.core->generate(std::move(generation));
}

}  // namespace weighlock::tiny
