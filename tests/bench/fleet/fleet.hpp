// N inference workers that speak SGLang's dialect and M trainers, all in one process: what both gateways are measured
// against. Each worker has an address of its own (127.1.a.b, trainers 127.2.a.b, one port), as hosts of a cluster have.
//
// What the workers hold is a version's directory and label; loading reads nothing. Rank 0 of the trainers really
// writes a small checkpoint. Bodies are shaped and sized as the real servers' (SGLang 0.5.23, a Werkzeug trainer).
//
// Both speak AReaL's AWEX dialect, and move nothing. What is collective there is so here: nobody answers before all
// have been asked, and then all of them do after the route's latency.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "http_server.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::bench {

class Fleet {
 public:
  Fleet();
  void run();  // announces the control port on stdout, then serves until the process ends

 private:
  struct Worker {
    bool trainer = false;
    int number = 0;
    bool paused = false;
    std::string label = "default";
    std::string directory = "/models/start";
    // The window from the receipt of a pause to the receipt of a continue, and how much of it were its own answers.
    Clock::time_point paused_at{};
    std::chrono::nanoseconds own{0};
    std::chrono::nanoseconds longest_window{0};
    Clock::time_point window_began{};
    std::chrono::nanoseconds own_in_it{0};
  };
  struct Route {
    std::uint64_t count = 0;
    Clock::time_point first{};
    Clock::time_point last{};
    Clock::time_point last_answer{};
  };

  void on_request(const Request& request);
  void answer_worker(const Request& request, Worker& worker);
  void answer_after(const Request& request, Worker& worker, std::string text);
  void send_answer(std::uint64_t connection, Worker& worker, std::string text, Clock::time_point received);
  std::string inference_answer(const Request& request, Worker& worker);
  std::string change_pause(const Request& request, Worker& worker, bool pause);
  std::string load(std::string_view body, Worker& worker);
  std::string weights_by_name(std::string_view body, const Worker& worker) const;
  void on_save(const Request& request, Worker& worker);
  void on_awex(const Request& request, Worker& worker);
  bool stalls(const Request& request, const Worker& worker) const;
  json::object stall(const json::value& body);

  json::object control(std::string_view target, const json::value& body);
  json::object set_up(const json::value& body);
  json::object statistics() const;
  void clear();

  HttpServer server_;
  int control_ = 0;
  int port_ = 0;
  std::vector<Worker> workers_;  // by address, less the control's
  int infer_ = 0;
  int train_ = 0;
  bool collective_ = true;  // saves answer only when all trainers have been asked
  std::map<std::string, std::chrono::microseconds, std::less<>> latency_;
  std::map<std::string, Route, std::less<>> routes_;
  std::vector<Request> waiting_saves_;  // of the collective; only connection and receipt are read
  struct Participant {
    std::uint64_t connection;
    std::size_t worker;
    std::string text;
    Clock::time_point received;
  };
  std::map<std::string, std::vector<Participant>, std::less<>> collectives_;  // by route, until all have been asked
  int awex_tensors_ = 30;
  std::string awex_group_;  // the body of the last bring-up
  // Workers that do what one route asks and don't answer: each `stall_every_`th, until they are let go.
  std::string stall_route_;
  int stall_every_ = 0;
  struct Stalled {
    std::uint64_t connection;
    std::size_t worker;
    std::string text;
    Clock::time_point received;
  };
  std::vector<Stalled> stalled_;
  std::uint64_t accepted_before_ = 0;
  int in_flight_max_ = 0;
};

}  // namespace weighlock::bench
