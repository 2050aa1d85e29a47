// SGLang's requests for text: who may enter the scheduler, and the answers.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tinyengine/engine/sglang_front.hpp"

namespace weighlock::tiny {

void SglangFront::generate(const Call&, const json::value& body, const Reply& reply) {
  auto request = parse_generate(body, context_.core->model()->shape());
  if (!request) {
    reply.send_json(400, json::object{{"error", json::object{{"message", request.error().text()}}}});
    return;
  }
  serve_text(*std::move(request), reply, false);
}

void SglangFront::completions(const Call&, const json::value& body, const Reply& reply) {
  auto request = parse_completion(body, context_.core->model()->shape());
  if (!request) {
    reply.send(sglang_error(request.error().text()));
    return;
  }
  serve_text(*std::move(request), reply, true);
}

void SglangFront::serve_text(TextRequest request, const Reply& reply, bool openai) {
  if (request.generation.id.empty()) request.generation.id = fmt::format("{:032x}", next_id_++);
  const auto shared = std::make_shared<TextRequest>(std::move(request));
  auto generation = std::make_shared<Generation>();
  generation->request = shared->generation;
  const auto refuse = [weak = weak_from_this(), id = shared->generation.id, reply, openai](const std::string& why) {
    if (const auto front = weak.lock()) front->known_.erase(id);
    reply.send(openai ? sglang_error(why)
                      : json_response(400, json::object{{"error", json::object{{"message", why}}}}));
  };
  known_[generation->request.id] = generation;
  if (shared->stream) stream_text(generation, shared, reply, openai);
  generation->on_end = [weak = weak_from_this(), shared, reply, openai, began = std::chrono::steady_clock::now()](
                           const Generation& ended, Finish finish) {
    const auto front = weak.lock();
    if (!front) return;
    front->known_.erase(shared->generation.id);
    front->adapters_->release(ended.request.adapter);
    if (finish == Finish::died) {
      front->hold(reply);
      return;
    }
    front->leave();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const json::object answer =
        openai ? completion_answer(*shared, ended, finish)
               : generate_answer(*shared, ended, finish, front->context_.core->label(), took.count());
    if (!shared->stream) {
      reply.send_json(200, answer);
      return;
    }
    reply.event(json::serialize(openai ? completion_answer(*shared, ended, finish, ended.output.size()) : answer));
    reply.event("[DONE]");
    reply.end_stream();
  };
  reply.on_closed([weak = weak_from_this(), generation = std::weak_ptr(generation)] {
    if (const auto front = weak.lock()) front->abandon(generation);
  });
  enter({std::move(generation), shared->adapter, refuse});
}

void SglangFront::stream_text(const std::shared_ptr<Generation>& generation,
                              const std::shared_ptr<TextRequest>& request, const Reply& reply, bool openai) {
  reply.begin_stream();
  generation->on_token = [weak = weak_from_this(), request, reply, openai,
                          sent = std::size_t{0}](const Generation& now) mutable {
    const auto front = weak.lock();
    if (!front || now.output.size() == sent) return;
    // SGLang's own events repeat the text so far; OpenAI's hold what is new.
    const json::object event = openai
                                   ? completion_answer(*request, now, std::nullopt, sent)
                                   : generate_answer(*request, now, std::nullopt, front->context_.core->label(), 0.0);
    sent = now.output.size();
    reply.event(json::serialize(event));
  };
}

void SglangFront::abandon(const std::weak_ptr<Generation>& generation) {
  const auto gone = generation.lock();
  if (!gone) return;
  if (std::erase_if(blocked_, [&](const Entrant& entrant) { return entrant.generation == gone; }) > 0) {
    known_.erase(gone->request.id);
    return;
  }
  context_.core->submit_quick([core = context_.core.get(), gone] {
    core->abort([&](const Generation& candidate) { return &candidate == gone.get(); });
  });
}

void SglangFront::enter(Entrant entrant) {
  blocked_.push_back(std::move(entrant));
  admit_blocked();
}

void SglangFront::admit_blocked() {
  while (!paused_ && !writing_ && writers_.empty() && !blocked_.empty()) {
    const Entrant entrant = std::move(blocked_.front());
    blocked_.pop_front();
    ++readers_;
    admit(entrant);
  }
}

void SglangFront::admit(const Entrant& entrant) {
  if (entrant.adapter.empty()) {
    context_.core->generate(entrant.generation);
    return;
  }
  adapters_->acquire(entrant.adapter, [weak = weak_from_this(), entrant](auto adapter) {
    const auto front = weak.lock();
    if (!front) return;
    if (!adapter) {
      entrant.refuse(adapter.error().message);
      front->leave();
      return;
    }
    entrant.generation->request.adapter = *std::move(adapter);
    const bool lethal = entrant.generation->request.adapter->adapter->other_ranks;
    front->context_.core->generate(entrant.generation);
    // Taken in silence, it is an assertion of the scheduler when it is first used.
    if (lethal) front->scheduler_died(front->context_.settings.timings.sglang_death);
  });
}

void SglangFront::leave() {
  if (readers_ > 0) --readers_;
  run_writer();
  admit_blocked();
}

}  // namespace weighlock::tiny
