// A lab of a test's own, for the cases that were handed over (tests/cases.md).
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "lab.hpp"

namespace weighlock::fault {

// "At once", on a crowded machine: no deadline of `patient_deadlines` was waited for.
constexpr Milliseconds kBelowAnyDeadline{3'500};

class CaseTest : public ::testing::Test {
 protected:
  // A pair that is made, with these settings.
  std::unique_ptr<Fleet> fleet(DialectKind dialect, int engines, json::object settings = {},
                               const json::object& deadlines = patient_deadlines()) {
    Fleet::Shape shape;
    shape.pair = "actor";
    shape.dialect = dialect;
    shape.engines = engines;
    shape.settings = std::move(settings);
    auto made = std::make_unique<Fleet>(lab, std::move(shape));
    const test::Reply reply = made->put(deadlines);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return made;
  }
  static void arm(Fleet& fleet, std::size_t engine, const char* route, Fault fault, bool always = false) {
    fleet.lab().on_peers([&] { fleet.engine(engine).arm(Plan{route, fault, always}); });
  }
  // The route's next call is answered, well, when the engine is let go: what counts until then is the order of the
  // test's steps, and not how long each takes.
  static void hold(Fleet& fleet, std::size_t engine, const char* route) {
    fleet.lab().on_peers([&] {
      fleet.engine(engine).late_by = Milliseconds(600'000);
      fleet.engine(engine).arm(Plan{route, Fault::late});
    });
  }
  static void let_go(Fleet& fleet, std::size_t engine) {
    fleet.lab().on_peers([&] { fleet.engine(engine).calm(); });
  }
  static int count(Fleet& fleet, std::size_t engine, const char* route) {
    int n = 0;
    fleet.lab().on_peers([&] { n = fleet.engine(engine).count(route); });
    return n;
  }
  static std::string state_of(const json::value& update) { return text_at(update, "state"); }
  // What the client was told went wrong.
  static std::string told(const json::value& update) {
    const json::value* error = find(update, "error");
    return error ? text_at(*error, "message") : "";
  }
  static void expect_well(Fleet& fleet) {
    for (const std::string& problem : fleet.problems()) ADD_FAILURE() << problem;
  }
  static void expect_in(const std::string& text, std::string_view word) {
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' isn't in: " << text;
  }
  template <typename Condition>
  static bool soon(const Condition& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  Lab lab;
};

class Stopwatch {
 public:
  Milliseconds read() const {
    return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began_);
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace weighlock::fault
