// The Responder: any thread's end of a ServerConnection. Each deed is posted to the loop and finds its connection
// there.
#include "weighlock/net/server_connection.hpp"

namespace weighlock {

struct Responder::Exchange {
  explicit Exchange(ExchangePointer with) : state(std::move(with)) {}
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  ExchangePointer state;

  template <typename Deed>
  void post(Deed deed) const {
    state->mailbox->post([state = state, deed = std::move(deed)]() mutable {
      if (const auto connection = state->connection.lock()) deed(*connection, state);
    });
  }

  // True for the first who answers.
  bool claim() const { return !state->answered.exchange(true); }
};

Responder::Exchange::~Exchange() {
  if (claim()) {
    state->ended = true;
    post([](ServerConnection& connection, const ExchangePointer& exchange) {
      connection.respond(exchange, problem(500, "the request was dropped without an answer"));
    });
  } else if (!state->ended) {
    // A stream that nobody will end: cut it short, so that the client doesn't take it for whole.
    post([](ServerConnection& connection, const ExchangePointer& exchange) { connection.abort(exchange, true); });
  }
}

void Responder::respond(HttpResponse response) const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post([response = std::move(response)](ServerConnection& connection, const ExchangePointer& exchange) {
    connection.respond(exchange, response);
  });
}

void Responder::respond(HttpResponse head, std::shared_ptr<const std::string> body) const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post(
      [head = std::move(head), body = std::move(body)](ServerConnection& connection, const ExchangePointer& exchange) {
        connection.respond_apart(exchange, head, body);
      });
}

void Responder::begin_stream(HttpResponse head) const {
  if (!exchange_->claim()) return;
  exchange_->post([head = std::move(head)](ServerConnection& connection, const ExchangePointer& exchange) {
    connection.begin_stream(exchange, head);
  });
}

void Responder::write(std::string bytes) const {
  exchange_->post([bytes = std::move(bytes)](ServerConnection& connection, const ExchangePointer& exchange) {
    connection.write_stream(exchange, bytes);
  });
}

void Responder::end_stream() const {
  if (exchange_->state->ended.exchange(true)) return;
  exchange_->post(
      [](ServerConnection& connection, const ExchangePointer& exchange) { connection.end_stream(exchange); });
}

bool Responder::closed() const {
  return exchange_->state->closed;
}

void Responder::on_closed(std::function<void()> on_closed) const {
  exchange_->state->mailbox->post([state = exchange_->state, on_closed = std::move(on_closed)] {
    if (state->closed) {
      on_closed();
    } else if (!state->connection.expired() && !state->delivered) {
      state->on_closed.push_back(on_closed);
    }
  });
}

void Responder::on_answer(std::function<void(const HttpResponse&)> on_answer) const {
  exchange_->state->on_answer = std::move(on_answer);
}

void Responder::reset() const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post(
      [](ServerConnection& connection, const ExchangePointer& exchange) { connection.abort(exchange, true); });
}

void Responder::raw(std::string bytes) const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post([bytes = std::move(bytes)](ServerConnection& connection, const ExchangePointer& exchange) {
    connection.answer_raw(exchange, bytes);
  });
}

void Responder::drip(HttpResponse response, Milliseconds per_byte) const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post(
      [response = std::move(response), per_byte](ServerConnection& connection, const ExchangePointer& exchange) {
        connection.answer_dripping(exchange, response, per_byte);
      });
}

void Responder::hang() const {
  if (!exchange_->claim()) return;
  exchange_->state->ended = true;
  exchange_->post([](ServerConnection& connection, const ExchangePointer& exchange) { connection.hang(exchange); });
}

Responder responder_for(const ExchangePointer& exchange) {
  return Responder(std::make_shared<Responder::Exchange>(exchange));
}

}  // namespace weighlock
