// vLLM's answers. Measured with 0.32.0 unless a row says otherwise.
#include <array>

#include "weighlock/engines/table.hpp"

namespace weighlock {
namespace {

using enum OperationKind;
using enum OutcomeKind;
using enum ErrorCode;

constexpr std::string_view kNoRoute = "control routes exist only if the engine was started with VLLM_SERVER_DEV_MODE=1";
constexpr std::string_view kProxy = "a proxy in front of the engine spoke; what the engine did isn't known";
constexpr std::string_view kDead = "the engine core is dead: restart the engine";
constexpr std::string_view kShape =
    "a tensor has another shape than the engine's: no reload cures this, restart the engine";
constexpr std::string_view kLethal =
    "the next request would kill the engine: it must load a good version before it is resumed";

constexpr std::string_view kLoraOff = "start the engine with --enable-lora and --max-lora-rank";
constexpr std::string_view kNoLoraRoute =
    "adapters can be changed only if the engine was started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1";

// The two loads differ only in what is loaded.
constexpr auto kTable = std::to_array<Row>({
    // A dead core answers everything so, until its process ends.
    {std::nullopt, {5}, body::contains, "EngineCore encountered an issue", touched, worker_failed, kDead, true},

    // A reload. After nearly every 500 the layers are left half made, also for a directory that isn't there.
    {load, {0}, body::contains, "exceeds dimension size", touched, worker_failed, kShape, true},
    {load_empty, {0}, body::contains, "exceeds dimension size", touched, worker_failed, kShape, true},
    {load, {5}, body::contains, "RPC call to reload_weights timed out", touched, timed_out, kDead, true},
    {load,
     {5},
     body::contains,
     "Model reloading with `",
     untouched,
     not_supported,
     "this load format can't reload: start the engine with --load-format auto"},
    {load,
     {5},
     body::contains,
     "object has no attribute 'reload_weights'",
     untouched,
     not_supported,
     "this release of the engine can't reload from a directory"},
    {load,
     {5},
     body::contains,
     "reload_weights() got an unexpected keyword argument",
     untouched,
     not_supported,
     "this release of the engine reloads in another way"},
    {load, {200}, body::has, "results", ok},
    {load_empty, {200}, body::has, "results", ok},
    {load, {502}, body::anything, "", unknown, unreachable, kProxy},
    {load, {504}, body::anything, "", unknown, timed_out, kProxy},
    {load_empty, {502}, body::anything, "", unknown, unreachable, kProxy},
    {load_empty, {504}, body::anything, "", unknown, timed_out, kProxy},
    {load, {5}, body::anything, "", touched, worker_failed, kLethal},
    {load_empty, {5}, body::anything, "", touched, worker_failed, kLethal},

    {pause, {200}, body::says, "status=paused", ok},
    {resume, {200}, body::says, "status=resumed", ok},
    {set_label, {200}, body::is_true, "success", ok},
    {set_label, {2}, body::is_false, "success", untouched},
    {flush, {200}, body::is_true, "success", ok},
    {flush,
     {2},
     body::is_false,
     "success",
     untouched,
     worker_failed,
     "requests are running: flush when they have ended"},

    // Adapters. A load that fails leaves the name free and everything else as it was.
    {load_adapter, {200}, body::contains, "added successfully", ok},
    {load_adapter, {400}, body::contains, "has already been loaded", untouched, adapter_exists},
    {load_adapter,
     {404},
     body::contains,
     "No adapter found for",
     untouched,
     storage_not_visible,
     "the engine sees no adapter_config.json there: is the storage mounted there under the same path?"},
    {load_adapter,
     {5},
     body::contains,
     "is greater than max_lora_rank",
     untouched,
     worker_failed,
     "save the adapter with a smaller rank, or start the engine with a greater --max-lora-rank"},
    {load_adapter, {5}, body::contains, "LoRA is not enabled", untouched, not_supported, kLoraOff},
    {load_adapter, {5}, body::contains, "Call to add_lora method failed", untouched},
    {load_adapter, {404}, body::anything, "", untouched, not_supported, kNoLoraRoute},
    {unload_adapter, {200}, body::contains, "removed successfully", ok},
    {unload_adapter, {404}, body::contains, "cannot be found", untouched, adapter_missing},
    {unload_adapter, {404}, body::anything, "", untouched, not_supported, kNoLoraRoute},
    {list_adapters, {200}, body::has, "data", ok},

    // Reads. A checksum of a half-made layer fails, and tells so.
    {verify, {5}, body::contains, "Cannot copy out of meta tensor", touched, worker_failed, kLethal},
    {verify, {200}, body::has, "checksums", ok},
    {read_state, {200}, body::object, "", ok},
    {probe,
     {400},
     body::contains,
     "Out of range float values",
     mismatch,
     worker_failed,
     "the engine computes NaN or infinity"},
    {probe, {200}, body::has, "choices", ok},
    {probe, {404}, body::anything, "", untouched, worker_failed, "the engine doesn't serve the model that it lists"},

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

std::span<const Row> vllm_table() {
  return kTable;
}

}  // namespace weighlock
