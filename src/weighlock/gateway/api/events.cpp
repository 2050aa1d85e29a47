// GET /v1/events: the journal as server-sent events. An event's id is its record's number, so a client that comes back
// with Last-Event-ID misses nothing.
#include <fmt/format.h>

#include <charconv>

#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kBatch = 256;         // records a read; the journal's lock is held that long
constexpr Milliseconds kHeartbeat{15'000};  // proxies cut connections that say nothing for a minute
constexpr std::size_t kStreamsMax = 256;    // each reads every record

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(ApiContext& context, Responder responder, std::int64_t next, std::string pair,
              std::shared_ptr<std::size_t> count)
      : context_(context),
        alive_(context.alive),
        responder_(std::move(responder)),
        next_(next),
        pair_(std::move(pair)),
        count_(std::move(count)) {
    ++*count_;
  }
  ~EventStream() { --*count_; }

  void start() {
    HttpResponse head;
    head.headers = {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
    responder_.begin_stream(std::move(head));
    // An id without data is no event, and tells a client that is cut off before its first one where to go on.
    responder_.write(fmt::format("id: {}\n\n", next_ - 1));
    // Registered callbacks hold the stream alive until the peer has gone.
    wait_ = context_.waiters.on_change([self = shared_from_this()] { self->pump(); });
    beat();
    responder_.on_closed([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish();
    });
    pump();
  }

 private:
  void finish() {
    finished_ = true;
    context_.waiters.forget(wait_);
    context_.loop.cancel(timer_);
  }

  void beat() {
    timer_ = context_.loop.after(kHeartbeat, [self = shared_from_this()] {
      if (self->alive_.expired()) return;
      if (self->responder_.closed()) return self->finish();
      self->responder_.write(": alive\n\n");
      self->beat();
    });
  }

  // One read at a time; what came meanwhile is read next.
  void pump() {
    if (finished_) return;
    if (responder_.closed()) return finish();
    if (reading_ || next_ > context_.journal.last_number()) return;
    reading_ = true;
    auto entries = std::make_shared<Result<std::vector<JournalEntry>>>(Error{});
    Journal* journal = &context_.journal;
    context_.read_pool.run([journal, entries, from = next_] { *entries = journal->read(from, kBatch); },
                           [self = shared_from_this(), entries] {
                             if (self->alive_.expired()) return;
                             self->reading_ = false;
                             self->send(*entries);
                           });
  }

  void send(const Result<std::vector<JournalEntry>>& entries) {
    if (finished_) return;
    if (!entries) {
      responder_.write(fmt::format("event: error\ndata: {}\n\n", json::serialize(json::value(entries.error().text()))));
      responder_.end_stream();
      return finish();
    }
    std::string out;
    for (const JournalEntry& entry : *entries) {
      next_ = entry.number + 1;
      if (!pair_.empty() && entry.record.pair != pair_) continue;
      json::object data{
          {"number", entry.number},    {"time", rfc3339(entry.wall_ms)}, {"kind", protocol::name(entry.record.kind)},
          {"pair", entry.record.pair}, {"update", entry.record.update},  {"worker", entry.record.worker},
          {"body", entry.record.body}};
      out += fmt::format("id: {}\nevent: {}\ndata: {}\n\n", entry.number, protocol::name(entry.record.kind),
                         json::serialize(data));
    }
    if (!out.empty()) responder_.write(std::move(out));
    pump();
  }

  ApiContext& context_;
  std::weak_ptr<bool> alive_;
  Responder responder_;
  std::int64_t next_;
  std::string pair_;
  std::shared_ptr<std::size_t> count_;
  bool reading_ = false;
  bool finished_ = false;
  Waiters::WaitId wait_ = 0;
  Loop::TimerId timer_ = 0;
};

void events(ApiContext& context, const RouteRequest& request, Responder responder,
            const std::shared_ptr<std::size_t>& count) {
  if (*count >= kStreamsMax)
    return responder.respond(
        problem_answer(Error{ErrorCode::queue_full,
                             fmt::format("{} event streams are open; at most {} are served", *count, kStreamsMax)},
                       request.path));
  std::string after(header(request.http.headers, "last-event-id"));
  if (after.empty()) after = request.query_value("after").value_or("");
  std::int64_t seen = context.journal.last_number();
  if (!after.empty()) {
    const auto [end, failure] = std::from_chars(after.data(), after.data() + after.size(), seen);
    if (failure != std::errc{} || end != after.data() + after.size() || seen < 0)
      return responder.respond(
          problem_answer(Error{ErrorCode::invalid_argument, "Last-Event-ID: must be the number of a record"},
                         request.path, "Last-Event-ID"));
  }
  std::make_shared<EventStream>(context, std::move(responder), seen + 1, request.query_value("pair").value_or(""),
                                count)
      ->start();
}

}  // namespace

void add_event_routes(Router& router, ApiContext& context) {
  router.add("GET", "/v1/events",
             [&context, count = std::make_shared<std::size_t>(0)](const RouteRequest& r, Responder a) {
               events(context, r, std::move(a), count);
             });
}

}  // namespace weighlock
