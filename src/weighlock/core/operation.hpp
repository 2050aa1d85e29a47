// What the protocol asks of an inference worker, and what it learns: the words that protocol/, engines/ and the gateway
// share.
//
// An Operation is dialect-free ("load this directory under this label"). A dialect (engines/) turns it into one or more
// HTTP requests, reads each answer, and gives back one Outcome. The protocol never sees HTTP; a dialect never decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/error.hpp"

namespace weighlock {

enum class DialectKind { sglang, vllm };

// `keep` leaves running requests running over the switch (SGLang in_place, vLLM keep), `retract` is SGLang's, `wait`
// vLLM's.
enum class PauseMode { abort, keep, retract, wait };

// How well a worker's weights are known, weakest first.
enum class Evidence { none, acknowledged, label, spot, checksum, probe };

enum class OperationKind {
  identify,    // which dialect and release is this; only for dialect "auto"
  read_state,  // incarnation, label, paused; changes nothing
  pause,
  set_label,
  load,        // read `directory` in place of the present weights
  load_empty,  // a heal step of vLLM: load the zero-tensor checkpoint at `directory`, which puts every kernel tensor
               // back
  flush,       // drop prefix caches
  verify,      // read_state, and the evidence asked for, on a paused engine; changes nothing
  resume,
  probe,           // generate one token on a running engine; changes nothing
  barrier,         // answers only when what was sent earlier has ended; then as read_state
  load_adapter,    // load the LoRA adapter of `directory` under the name `adapter`, beside the others; no pause needed
  unload_adapter,  // forget the adapter named `adapter`; an engine may wait for the requests that use it
  list_adapters,   // read_state, and which adapters it serves; changes nothing
};

// One thing asked of one worker.
struct Operation {
  OperationKind kind = OperationKind::read_state;
  PauseMode pause_mode = PauseMode::abort;  // pause; load and flush too: what must be flushed follows from it
  std::string directory;                    // load, load_empty; verify: the version whose expectations are compared
  std::string adapter;                      // load_adapter, unload_adapter: the versioned name, "policy-v7"
  std::string label;  // set_label, and load where the load carries the label; verify: what it must be
  // verify: the level asked for. load: `acknowledged` if its own answer is all that is asked for.
  Evidence evidence = Evidence::label;
  // read_state: label and pause only; the incarnation is read through the engine's queue and costs more than both.
  // resume: ends with such a reading.
  bool brief = false;
  // A read by one who has not paused it: where the engine's word for paused can mean something else, the dialect makes
  // sure, at the price of a request that a paused engine answers, to nobody, when it is continued.
  bool doubt_pause = false;
  // load: not from a directory but by the collective of this version, in which the worker's group takes part.
  std::optional<std::int64_t> transfer = std::nullopt;
  // With `transfer`: not the collective itself, but the memory of this tag comes back for it ("weights", "kv_cache").
  std::string memory = {};
};

struct LoadedAdapter {
  std::string name;
  std::string directory;  // where it was loaded from; "" where the engine doesn't tell
};

// What an engine said of itself.
struct StateReading {
  std::string incarnation;  // its start time as it prints it; "" where the engine doesn't tell
  std::string label;
  bool paused = false;
  std::string model_path;  // where it started, whatever it loaded since; "" where it was not asked, or doesn't tell
  std::optional<std::vector<LoadedAdapter>> adapters = std::nullopt;  // list_adapters
  std::optional<std::int64_t> adapter_rank_max = std::nullopt;        // list_adapters, where the engine tells its limit
};

enum class OutcomeKind {
  ok,         // done, and the body says so
  untouched,  // refused or failed; by the dialect's table the weights and the pause are as before
  touched,  // failed; by the dialect's table the weights may be in part new, or the engine will die at the next request
  mismatch,  // verify and probe: the engine answered, and what it serves isn't what it should
  unknown,   // no answer, or none that proves anything: it may have taken effect, or may yet
  not_sent,  // not a byte reached the engine: nothing happened
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::unknown;
  ErrorCode code = ErrorCode::worker_failed;  // when not ok
  std::string text;                           // the engine's own words, or the transport's; "" when ok
  std::optional<StateReading> reading;        // read_state, verify, barrier (when answered), identify, brief resume
  Evidence evidence = Evidence::none;         // verify and probe: the level reached
  bool vacuous = false;                // verify: nothing differed from the version before, so spot proved nothing
  bool needs_restart = false;          // only a new process can serve again (a wrong shape in vLLM)
  bool blames_a_peer = false;          // of a collective: its words tell of another member
  std::optional<DialectKind> dialect;  // identify
  bool ok() const { return kind == OutcomeKind::ok; }
};

// What the protocol must know of a dialect to plan steps; engines/ fills it in.
struct DialectTraits {
  DialectKind kind = DialectKind::sglang;
  std::vector<PauseMode> pause_modes;
  bool load_sets_label = false;             // SGLang: the load carries the label
  bool load_flushes = false;                // SGLang, but in mode `keep`: the load drops the prefix caches
  bool missing_directory_harmless = false;  // a load of a directory that isn't there leaves the weights (SGLang)
  bool heal_needs_empty_load = false;  // vLLM: if loading the good version fails, load_empty first, then the good one
  Evidence evidence_best = Evidence::label;  // on a paused engine
  std::vector<OperationKind> barriers;       // earlier operations that `barrier` waits for, in every pause mode but ...
  bool barrier_covers_pause_wait = false;    // ... the drain of `wait`
  // SGLang: a load into a running engine waits for its requests outside the queue that a barrier passes through.
  bool load_barrier_needs_pause = false;
  bool has_barrier(OperationKind earlier, PauseMode mode) const;
};

std::string_view name(DialectKind kind);
std::string_view name(PauseMode mode);
std::string_view name(Evidence evidence);
std::string_view name(OperationKind kind);
std::string_view name(OutcomeKind kind);
std::optional<DialectKind> dialect_from(std::string_view name);
std::optional<PauseMode> pause_mode_from(std::string_view name);
std::optional<Evidence> evidence_from(std::string_view name);

// Values of one tensor, to compare with what an engine returns.
struct TensorExpectation {
  std::string name;
  std::string dtype;  // as safetensors spells it: "BF16"
  std::vector<std::uint64_t> shape;
  std::vector<float> leading;         // the first values, in C order; at most 100 (SGLang's truncate_size default)
  bool differs_from_previous = true;  // false: spot proves nothing by it
  std::string sha256;                 // of the raw bytes, lower-case hex; "" until digested
};

// What a sealed version should look like from inside an engine; made by store/, compared by engines/.
struct Expectations {
  std::vector<TensorExpectation> tensors;
};

}  // namespace weighlock
