// Large answers: how large one may be, and that it waits for its room.
#include <chrono>
#include <memory>
#include <string>

#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {
namespace {

using Kind = TransportError::Kind;
using namespace std::chrono_literals;

const HttpRequest kGet{"GET", "/state", {}, ""};

class AnswerPlaceTest : public LoopFixture {};

TEST_F(AnswerPlaceTest, a_large_answer_is_read_when_there_is_room_for_it) {
  const std::string large(3 * 1024 * 1024, 'x');
  const int port = serve([&](const HttpRequest&, const Responder& responder) { responder.respond({200, {}, large}); });
  std::shared_ptr<AnswerRoom::Place> before, place;
  on_loop([&] {
    const auto room = std::make_shared<AnswerRoom>(loop_, 4 * 1024 * 1024);
    before = room->place();
    EXPECT_TRUE(before->enter(2 * 1024 * 1024, nullptr));
    place = room->place();
  });
  HttpCallOptions options = within(10s);
  options.answer_place = place;
  auto result = begin_call(url_of(port), kGet, options);
  EXPECT_EQ(result.wait_for(200ms), std::future_status::timeout);
  on_loop([&] { before.reset(); });
  EXPECT_EQ(response_of(result.get()).body, large);
  on_loop([&] {
    place.reset();
    options = {};
  });
}

TEST_F(AnswerPlaceTest, an_answer_that_waits_for_room_ends_at_its_deadline) {
  const int port = serve([&](const HttpRequest&, const Responder& responder) {
    responder.respond({200, {}, std::string(3 * 1024 * 1024, 'x')});
  });
  std::shared_ptr<AnswerRoom::Place> before, place;
  on_loop([&] {
    const auto room = std::make_shared<AnswerRoom>(loop_, 4 * 1024 * 1024);
    before = room->place();
    EXPECT_TRUE(before->enter(2 * 1024 * 1024, nullptr));
    place = room->place();
  });
  HttpCallOptions options = within(200ms);
  options.answer_place = place;
  EXPECT_EQ(Kind::timeout, error_of(call(url_of(port), kGet, options)).kind);
  on_loop([&] {
    before.reset();
    place.reset();
    options = {};
  });
}

TEST_F(AnswerPlaceTest, an_answer_may_be_as_large_as_its_call_says) {
  const int port = serve([](const HttpRequest&, const Responder& responder) {
    responder.respond({200, {}, std::string(2000, 'x')});
  });
  HttpCallOptions options = within(5s);
  options.answer_bytes_max = 1999;
  EXPECT_EQ(Kind::too_large, error_of(call(url_of(port), kGet, options)).kind);
  options.answer_bytes_max = 2000;
  EXPECT_EQ(200, response_of(call(url_of(port), kGet, options)).status);
}

}  // namespace
}  // namespace weighlock::testing
