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
  reply.send_json(200, json::object{{"object", "list"}, {"data", json::array{std::move(model)}}});
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
  if (request->model != model_name()) {
    reply.send(
        vllm_error(404, fmt::format("The model `{}` does not exist.", request->model), "NotFoundError", "model"));
    return;
  }
  serve_text(*std::move(request), reply);
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
