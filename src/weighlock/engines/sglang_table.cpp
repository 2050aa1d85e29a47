// SGLang's answers. Measured with 0.5.23 unless a row says otherwise.
#include <array>

#include "weighlock/engines/table.hpp"

namespace weighlock {
namespace {

using enum OperationKind;
using enum OutcomeKind;
using enum ErrorCode;

constexpr std::string_view kNoRoute = "this release or build of the engine doesn't have the route";
constexpr std::string_view kProxy = "a proxy in front of the engine spoke; what the engine did isn't known";
constexpr std::string_view kLoraOff = "start the engine with --enable-lora, --max-lora-rank and --lora-target-modules";
constexpr std::string_view kNotVisible =
    "the engine can't see the directory, or a file in it: is the storage mounted there under the same path?";
constexpr std::string_view kHalfUnloaded = "unload it again, then load it";
constexpr std::string_view kFlush = "requests are running or queued: flush when they have ended";

constexpr auto kTable = std::to_array<Row>({
    // A load. A 200 can be a failure (a Ray server answers 200 with success false), and a 400 can mean new weights.
    {load,
     {0},
     body::contains,
     "Failed to get weights iterator",
     untouched,
     storage_not_visible,
     "the engine can't see the directory, or no weight file in it: is the storage mounted there under the same path?"},
    {load,
     {0},
     body::contains,
     "Failed to get model loader",
     untouched,
     not_supported,
     "the engine was started with a load format that can't reload; start it with the default one"},
    {load, {0}, body::contains, "Weights were updated, but the cache was not flushed", touched, worker_failed, kFlush},
    {load, {200}, body::loaded_nothing, "", touched, worker_failed, "the engine says that it loaded nothing"},
    {load, {200}, body::is_true, "success", ok},
    {load, {2}, body::is_false, "success", touched},
    {load, {400}, body::is_false, "success", touched},  // partly loaded, rolled back to nobody knows what (sglang#8863)
    {load, {400}, body::says, "object=error", untouched, invalid_argument},
    {load, {422}, body::anything, "", untouched, invalid_argument},  // releases before 0.5.23 validate with 422
    {load, {404}, body::anything, "", untouched, not_supported, kNoRoute},
    {load, {405}, body::anything, "", untouched, not_supported, kNoRoute},
    {load, {0}, body::anything, "", unknown, bad_answer},

    {pause, {200}, body::says, "status=ok", ok},
    {resume, {200}, body::says, "status=ok", ok},
    {set_label, {200}, body::is_true, "success", ok},
    {set_label, {2}, body::is_false, "success", untouched},

    // A flush answers text. 400 is refusal, not failure: the caches are as they were.
    {flush, {200}, body::contains, "Cache flushed", ok},
    {flush, {200}, body::is_true, "success", ok},  // the Ray server
    {flush,
     {400},
     body::contains,
     "Another flush_cache is already in progress",
     untouched,
     worker_failed,
     "try again later"},
    {flush, {400}, body::contains, "Flush cache failed", untouched, worker_failed, kFlush},
    {flush, {400}, body::contains, "Timed out waiting for idle state", untouched, worker_failed, kFlush},

    // Adapters. A failed load leaves the name free or half unloaded, the other adapters and the base as they were. Two
    // wordings of "already loaded": the scheduler's, and that of the HTTP process's registry.
    {load_adapter, {200}, body::is_true, "success", ok},
    {load_adapter, {0}, body::contains, "because it is already loaded", untouched, adapter_exists},
    {load_adapter, {0}, body::contains, "already exists. Loaded LoRAs", untouched, adapter_exists},
    {load_adapter, {0}, body::contains, "has an incomplete unload", untouched, adapter_half_unloaded, kHalfUnloaded},
    {load_adapter, {0}, body::contains, "LoRA is not enabled", untouched, not_supported, kLoraOff},
    {load_adapter, {0}, body::contains, "Repo id must ", untouched, storage_not_visible, kNotVisible},
    {load_adapter, {0}, body::contains, "No such file or directory", untouched, storage_not_visible, kNotVisible},
    {load_adapter, {0}, body::contains, "Cannot find any model weights", untouched, storage_not_visible, kNotVisible},
    {load_adapter,
     {0},
     body::contains,
     "is incompatible with the current LoRA memory pool configuration",
     untouched,
     worker_failed,
     "its rank is above the engine's --max-lora-rank, or it has modules that aren't in --lora-target-modules"},
    {load_adapter, {0}, body::is_false, "success", untouched},
    {unload_adapter, {200}, body::is_true, "success", ok},
    {unload_adapter, {0}, body::contains, "does not exist. Loaded LoRAs", untouched, adapter_missing},
    {unload_adapter, {0}, body::contains, "LoRA is not enabled", untouched, not_supported, kLoraOff},
    {unload_adapter, {0}, body::is_false, "success", untouched},
    {list_adapters, {200}, body::has, "data", ok},

    // Reads and the probe.
    {read_state, {200}, body::object, "", ok},
    {probe, {200}, body::has, "meta_info", ok},

    // Everything else.
    {std::nullopt, {404}, body::anything, "", untouched, not_supported, kNoRoute},
    {std::nullopt, {405}, body::anything, "", untouched, not_supported, kNoRoute},
    {std::nullopt, {408}, body::anything, "", unknown, timed_out, kProxy},
    {std::nullopt, {4}, body::anything, "", untouched},
    {std::nullopt,
     {3},
     body::anything,
     "",
     untouched,
     bad_answer,
     "redirects are not followed: give the engine's own URL"},
    {std::nullopt, {502}, body::anything, "", unknown, unreachable, kProxy},
    {std::nullopt, {504}, body::anything, "", unknown, timed_out, kProxy},
    {std::nullopt, {0}, body::anything, "", unknown, bad_answer},
});

}  // namespace

std::span<const Row> sglang_table() {
  return kTable;
}

}  // namespace weighlock
