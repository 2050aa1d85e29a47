// The control routes of AWEX workers: what is sent, to the byte, and what an answer means.
//
// Pure. Worker bodies are keyword arguments over there, so no key may be added. None of these is ever repeated, but for
// a request of which not a byte was sent: bring-up and transfer are collectives. Source: AReaL's gateway and workers as
// recorded on the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/awex/devices.hpp"
#include "weighlock/core/error.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

enum class AnswerKind {
  ok,        // the worker says that it did its part
  failed,    // it answered, and not that: its part has ended
  unknown,   // no answer, or a proxy's: its part may go on
  not_sent,  // not a byte reached it
};

struct Answer {
  AnswerKind kind = AnswerKind::unknown;
  ErrorCode code = ErrorCode::worker_failed;  // when not ok
  std::string text;                           // one line; "" when ok
  bool blames_a_peer = false;                 // failed, with words that tell of another member
  bool port_taken = false;                    // failed, since somebody else listens where the group was to meet
  bool ok() const { return kind == AnswerKind::ok; }
};
// `target` names the route in the text. Ok only for 200 with a status of "success" or "ok", and with the version that
// the call was for, where the answer tells one (trainers' doesn't).
Answer classify(std::string_view target, const HttpResult& result, std::optional<std::int64_t> version = std::nullopt);

// Releases that know it add "ip" and "device_id" for `with_device`; others don't look at it.
HttpRequest parallelism_request(bool with_device);
struct Parallelism {
  std::uint32_t world_size = 0;
  json::value converter_context;  // null where the release has none
  json::value parameter_layout;   // likewise
  Device device;                  // of an engine's first rank; without an address where it wasn't told
};
// `who` for errors: "trainer http://10.0.0.4:8003".
Result<Parallelism> read_parallelism(std::string_view who, const HttpResult& result);

// Without a body, unless a release reported something that the other side is to be told.
HttpRequest train_meta_request(const Parallelism& train, const Parallelism& infer, std::uint32_t infer_world);
HttpRequest infer_meta_request(const Parallelism& train, const Parallelism& infer);

struct BringUp {
  std::string pair_name;    // the group's; also the path at which its metadata is read
  std::string master_addr;  // without brackets
  int master_port = 0;
  std::uint32_t world_size = 0;
  std::uint32_t infer_world_size = 0;
  std::uint32_t train_world_size = 0;
  std::uint32_t engines = 0;
  std::string admin_api_key;  // colocated only: workers write to the store
};
// `transfer_rank`: an engine's index, or all engines' ranks + the trainer's.
HttpRequest init_request(const BringUp& all, std::string_view kv_store_url, std::uint32_t transfer_rank);
HttpRequest init_colocate_request(const BringUp& all, std::string_view kv_store_url, std::uint32_t transfer_rank);
HttpRequest warm_up_request(std::uint32_t world_size);
HttpRequest update_request(std::int64_t version);
HttpRequest colocate_update_request(std::int64_t version);
HttpRequest memory_request(bool release, std::string_view tag);
HttpRequest teardown_request();

// Keys that workers of a colocated pair leave in the store at an update.
std::vector<std::string> colocate_keys(std::uint32_t train_ranks, std::int64_t version);

// "http://10.0.0.7:7080"; an IPv6 address gets its brackets.
std::string store_url(std::string_view address, int port);

}  // namespace weighlock::awex
