#include "weighlock/engines/table.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace weighlock {
namespace {

using enum OperationKind;
using enum OutcomeKind;

// One answer, measured (or, in the rows that say so, foreseen) and its outcome.
struct Example {
  OperationKind operation;
  int status;
  std::string body;
  OutcomeKind kind;
  ErrorCode code = ErrorCode::worker_failed;
  bool needs_restart = false;
};

// SGLang's answer when an adapter wasn't loaded or unloaded.
std::string no_adapter(const std::string& message) {
  return R"({"rid":null,"http_worker_ipc":null,"success":false,"error_message":")" + message +
         R"(","loaded_adapters":null})";
}

const std::vector<Example>& sglang_examples() {
  static const std::vector<Example> kExamples = {
      {load, 200,
       R"({"success":true,"message":"Succeeded to update model weights. Weight version updated to 2.","num_paused_requests":0})",
       ok},
      {load, 400,
       R"({"success":false,"message":"Failed to get weights iterator: Repo id must use alphanumeric chars, … '/nonexistent'.."})",
       untouched, ErrorCode::storage_not_visible},
      {load, 400,
       R"({"success":false,"message":"Failed to get weights iterator: Cannot find any model weights with `/w/empty`."})",
       untouched, ErrorCode::storage_not_visible},
      {load, 400,
       R"({"success":false,"message":"Failed to get model loader: <sglang.DummyModelLoader object at 0x7f>."})",
       untouched, ErrorCode::not_supported},
      {load, 400,
       R"({"success":false,"message":"Weights were updated, but the cache was not flushed because requests are still running or queued. Retract or finish them, then call /flush_cache."})",
       touched},
      {load, 400,
       R"({"success":false,"message":"Failed to update weights: size mismatch.\nRolling back to original weights"})",
       touched},
      {load, 200, R"({"success":true,"message":"updated 0 weights"})", touched},
      {load, 200, R"({"success":true,"message":"updated 10 weights"})", ok},
      {load, 200, R"({"success":false,"message":"m"})", touched},
      {load, 200, "", unknown, ErrorCode::bad_answer},
      {load, 200, R"({"success":1})", unknown, ErrorCode::bad_answer},
      {load, 400,
       R"({"object":"error","message":"weight_version: a string is wanted","type":"Bad Request","param":null,"code":400})",
       untouched, ErrorCode::invalid_argument},
      {load, 422, R"({"detail":[{"msg":"Field required"}]})", untouched, ErrorCode::invalid_argument},
      {load, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {load, 405, R"({"detail":"Method Not Allowed"})", untouched, ErrorCode::not_supported},
      {load, 400, "<html>proxy</html>", unknown, ErrorCode::bad_answer},
      {load, 500, "Internal Server Error", unknown, ErrorCode::bad_answer},
      {pause, 200, R"({"message":"Generation paused successfully.","status":"ok"})", ok},
      {pause, 200, R"({"message":"Generation paused successfully."})", unknown, ErrorCode::bad_answer},
      {pause, 422, R"({"detail":"body"})", untouched},
      {pause, 400, R"({"object":"error","message":"mode"})", untouched},
      {pause, 500, "Internal Server Error", unknown, ErrorCode::bad_answer},
      {pause, 408, "", unknown, ErrorCode::timed_out},
      {pause, 307, "", untouched, ErrorCode::bad_answer},
      {pause, 502, "", unknown, ErrorCode::unreachable},
      {pause, 504, "", unknown, ErrorCode::timed_out},
      {pause, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {pause, 405, R"({"detail":"Method Not Allowed"})", untouched, ErrorCode::not_supported},
      {resume, 200, R"({"message":"Generation continued successfully.","status":"ok"})", ok},
      {set_label, 200, R"({"success":true,"message":"Weight version updated to 7","new_version":"7"})", ok},
      {set_label, 200, R"({"success":false,"message":"m"})", untouched},
      {flush, 200,
       "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the "
       "operation will not be performed.)\n",
       ok},
      {flush, 200, R"({"success":true})", ok},
      {flush, 400, "Flush cache failed.\n", untouched},
      {flush, 400, "Timed out waiting for idle state.", untouched},
      {flush, 400, "Another flush_cache is already in progress.", untouched},
      {load_adapter, 200,
       R"({"rid":null,"http_worker_ipc":null,"success":true,"error_message":"","loaded_adapters":{"p-v1":"/w/p1"}})",
       ok},
      {load_adapter, 400, no_adapter("Failed to load LoRA adapter p-v1 because it is already loaded"), untouched,
       ErrorCode::adapter_exists},
      {load_adapter, 400, no_adapter("LoRA with name p-v1 already exists. Loaded LoRAs: odict_keys(['p-v1'])"),
       untouched, ErrorCode::adapter_exists},
      {load_adapter, 400,
       no_adapter("LoRA adapter 'p-v1' has an incomplete unload. Retry the unload before loading it again."), untouched,
       ErrorCode::adapter_half_unloaded},
      {load_adapter, 400,
       no_adapter("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/nowhere/lora'. Use `repo_type` "
                  "argument if needed."),
       untouched, ErrorCode::storage_not_visible},
      {load_adapter, 400, no_adapter("[Errno 2] No such file or directory: '/w/empty/adapter_config.json'"), untouched,
       ErrorCode::storage_not_visible},
      {load_adapter, 400, no_adapter("Cannot find any model weights with `/w/empty`"), untouched,
       ErrorCode::storage_not_visible},
      {load_adapter, 400,
       no_adapter("Error while deserializing header: incomplete metadata, file not fully covered"), untouched},
      {load_adapter, 400,
       no_adapter("Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' "
                  "and the maximum length is 96: '/nowhere'."),
       untouched, ErrorCode::storage_not_visible},
      {load_adapter, 400,
       no_adapter("LoRA adapter p-v1 with rank 64 is incompatible with the current LoRA memory pool configuration. "
                  "Please ensure that the LoRA adapter's rank is within the configured `--max-lora-rank` and that the "
                  "target modules are included in `--lora-target-modules`."),
       untouched},
      {load_adapter, 400, no_adapter("LoRA is not enabled. Please set `--enable-lora` to enable LoRA."), untouched,
       ErrorCode::not_supported},
      {load_adapter, 400,
       no_adapter("Failed to load p-v1 because LoRA serving currently doesn't support DoRA adapters"), untouched},
      {load_adapter, 200, no_adapter("a Ray server says failures so"), untouched},
      {load_adapter, 500, "Internal Server Error", unknown, ErrorCode::bad_answer},
      {load_adapter, 504, "", unknown, ErrorCode::timed_out},
      {load_adapter, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {load_adapter, 400, R"({"object":"error","message":"lora_path: Field required","code":400})", untouched},
      {unload_adapter, 200,
       R"({"rid":null,"http_worker_ipc":null,"success":true,"error_message":"","loaded_adapters":{}})", ok},
      {unload_adapter, 400, no_adapter("LoRA with name nope does not exist. Loaded LoRAs: odict_keys(['p-v1'])"),
       untouched, ErrorCode::adapter_missing},
      {unload_adapter, 400, no_adapter("LoRA is not enabled. Please set `--enable-lora` to enable LoRA."), untouched,
       ErrorCode::not_supported},
      {unload_adapter, 400, no_adapter("the scheduler couldn't"), untouched},
      {unload_adapter, 200, "", unknown, ErrorCode::bad_answer},
      {list_adapters, 200, R"({"object":"list","data":[]})", ok},
      {list_adapters, 200, R"({"object":"list"})", unknown, ErrorCode::bad_answer},
      {read_state, 200, R"({"model_path":"/w/v1","weight_version":"default"})", ok},
      {read_state, 200, "null", unknown, ErrorCode::bad_answer},
      {probe, 200, R"({"text":"a","meta_info":{}})", ok},
      {probe, 400, R"({"error":{"message":"bad"}})", untouched},
  };
  return kExamples;
}

const std::vector<Example>& vllm_examples() {
  const std::string dead =
      R"({"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}})";
  const auto error = [](int status, const std::string& message, const std::string& type) {
    return R"({"error":{"message":")" + message + R"(","type":")" + type + R"(","param":null,"code":)" +
           std::to_string(status) + "}}";
  };
  const auto rpc = [](const std::string& text) {
    return R"({"error":{"message":"Call to collective_rpc method failed: )" + text +
           R"(","type":"InternalServerError","param":null,"code":500}})";
  };
  static const std::vector<Example> kExamples = {
      {load, 200, R"({"results":[null]})", ok},
      {load_empty, 200, R"({"results":[null]})", ok},
      {load, 500, rpc("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '<path>'."), touched},
      {load, 500, rpc("Cannot find any model weights with `<path>`"), touched},
      {load, 500, rpc("Error while deserializing header: incomplete metadata, file not fully covered"), touched},
      {load, 500, rpc("Weight files referenced in index but missing: {'<path>'}"), touched},
      {load, 500, rpc("There is no module or parameter named 'layers.0.mlp.surprise' in LlamaModel"), touched},
      {load, 500, rpc("'Parameter' object has no attribute 'weight_loader'"), touched},
      {load, 500, rpc("Attempted to load weight (torch.Size([64, 128])) into parameter (torch.Size([0]))"), touched},
      {load, 500, rpc("start (0) + length (128) exceeds dimension size (64)."), touched, ErrorCode::worker_failed,
       true},
      {load_empty, 500, rpc("start (0) + length (128) exceeds dimension size (64)."), touched, ErrorCode::worker_failed,
       true},
      {load_empty, 500, rpc("anything"), touched},
      {load, 500, rpc("RPC call to reload_weights timed out."), touched, ErrorCode::timed_out, true},
      {load, 500, rpc("Model reloading with `dummy` format"), untouched, ErrorCode::not_supported},
      {load, 500, rpc("'CPUWorker' object has no attribute 'reload_weights'"), untouched, ErrorCode::not_supported},
      {load, 500, rpc("CPUWorker.reload_weights() got an unexpected keyword argument 'weights_path'"), untouched,
       ErrorCode::not_supported},
      {load, 502, "", unknown, ErrorCode::unreachable},
      {load, 504, "", unknown, ErrorCode::timed_out},
      {load_empty, 502, "", unknown, ErrorCode::unreachable},
      {load_empty, 504, "", unknown, ErrorCode::timed_out},
      {load, 500, dead, touched, ErrorCode::worker_failed, true},
      {load, 400,
       R"({"error":{"message":"Missing 'method' in request body","type":"Bad Request","param":null,"code":400}})",
       untouched},
      {load, 200, "", unknown, ErrorCode::bad_answer},
      {load, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {load_adapter, 200, "Success: LoRA adapter 'a7' added successfully.", ok},
      {load_adapter, 400,
       error(400,
             "The lora adapter 'a7' has already been loaded. If you want to load the adapter in place, set "
             "'load_inplace' to True.",
             "InvalidUserInput"),
       untouched, ErrorCode::adapter_exists},
      {load_adapter, 404, error(404, "Loading lora a7 failed: No adapter found for /nowhere", "NotFoundError"),
       untouched, ErrorCode::storage_not_visible},
      {load_adapter, 500,
       error(500,
             "Call to add_lora method failed: Worker failed with error 'LoRA rank 64 is greater than max_lora_rank "
             "16.', please check the stack trace above for the root cause",
             "InternalServerError"),
       untouched},
      {load_adapter, 500,
       error(500, "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.",
             "InternalServerError"),
       untouched, ErrorCode::not_supported},
      {load_adapter, 500,
       error(500,
             "Call to add_lora method failed: Worker failed with error 'Error while deserializing header: incomplete "
             "metadata, file not fully covered'",
             "InternalServerError"),
       untouched},
      {load_adapter, 500,
       error(500, "Call to add_lora method failed: <path> doesn't contain tensors", "InternalServerError"), untouched},
      {load_adapter, 500,
       error(500, "Call to add_lora method failed: vLLM does not yet support DoRA.", "InternalServerError"), untouched},
      {load_adapter, 404, error(404, "Loading lora a7 failed: No adapter found for <path>", "NotFoundError"),
       untouched, ErrorCode::storage_not_visible},
      {load_adapter, 400,
       error(400, "The lora adapter 'policy' conflicts with a served base model.", "InvalidUserInput"), untouched},
      {load_adapter, 500, dead, touched, ErrorCode::worker_failed, true},
      {load_adapter, 500, error(500, "something else", "InternalServerError"), unknown, ErrorCode::bad_answer},
      {load_adapter, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {load_adapter, 200, "", unknown, ErrorCode::bad_answer},
      {load_adapter, 502, "", unknown, ErrorCode::unreachable},
      {unload_adapter, 200, "Success: LoRA adapter 'a7' removed successfully.", ok},
      {unload_adapter, 404, error(404, "The lora adapter 'x' cannot be found.", "NotFoundError"), untouched,
       ErrorCode::adapter_missing},
      {unload_adapter, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {unload_adapter, 500, error(500, "something else", "InternalServerError"), unknown, ErrorCode::bad_answer},
      {list_adapters, 200, R"({"object":"list","data":[]})", ok},
      {pause, 200, R"({"status":"paused"})", ok},
      {pause, 400,
       R"({"error":{"message":"1 validation error: …","type":"Bad Request","param":"query.mode","code":400}})",
       untouched},
      {pause, 500, R"({"error":"Failed to pause generation: EngineCore encountered an issue. See stack trace"})",
       touched, ErrorCode::worker_failed, true},
      {pause, 500, R"({"error":"Failed to pause generation: something else"})", unknown, ErrorCode::bad_answer},
      {pause, 502, "", unknown, ErrorCode::unreachable},
      {pause, 504, "", unknown, ErrorCode::timed_out},
      {pause, 408, "", unknown, ErrorCode::timed_out},
      {pause, 302, "", untouched, ErrorCode::bad_answer},
      {pause, 404, R"({"detail":"Not Found"})", untouched, ErrorCode::not_supported},
      {pause, 405, R"({"detail":"Method Not Allowed"})", untouched, ErrorCode::not_supported},
      {resume, 200, R"({"status":"resumed"})", ok},
      {set_label, 200, R"({"success":true,"new_version":"v2"})", ok},
      {set_label, 200, R"({"success":false})", untouched},
      {flush, 200, R"({"success":true})", ok},
      {flush, 200, R"({"success":false})", untouched},
      {verify, 200, R"({"checksums":{}})", ok},
      {verify, 500, rpc("Cannot copy out of meta tensor; no data!"), touched},
      {read_state, 200, R"({"weight_version":"default"})", ok},
      {probe, 200, R"({"choices":[]})", ok},
      {probe, 400, R"({"error":{"message":"Out of range float values are not JSON compliant"}})", mismatch},
      {probe, 404, R"({"error":{"message":"The model `x` does not exist."}})", untouched},
  };
  return kExamples;
}

void expect_rows(std::span<const Row> table, const std::vector<Example>& examples) {
  std::set<std::size_t> hit;
  for (const Example& example : examples) {
    const HttpResponse response{example.status, {}, example.body};
    const std::size_t index = classify(table, example.operation, read_answer(response));
    const Row& row = table[index];
    hit.insert(index);
    const std::string what =
        std::string(name(example.operation)) + " " + std::to_string(example.status) + " " + example.body;
    EXPECT_EQ(name(row.kind), name(example.kind)) << what;
    if (row.kind != ok) {
      EXPECT_EQ(info(row.code).type, info(example.code).type) << what;
    }
    EXPECT_EQ(row.needs_restart, example.needs_restart) << what;
  }
  for (std::size_t i = 0; i < table.size(); ++i)
    EXPECT_EQ(hit.count(i), 1U) << "no example for row " << i << ": " << table[i].needle << " " << table[i].remedy;
}

TEST(Table, of_sglang_gives_each_measured_answer_its_outcome_and_each_row_an_answer) {
  expect_rows(sglang_table(), sglang_examples());
}

TEST(Table, of_vllm_gives_each_measured_answer_its_outcome_and_each_row_an_answer) {
  expect_rows(vllm_table(), vllm_examples());
}

TEST(Table, fits_anything_at_its_end) {
  for (const auto table : {sglang_table(), vllm_table()}) {
    EXPECT_EQ(table.back().matches, &body::anything);
    EXPECT_FALSE(table.back().operation.has_value());
    EXPECT_EQ(table.back().status.value, 0);
    EXPECT_EQ(table.back().kind, unknown) << "what nobody foresaw is not known";
  }
}

}  // namespace
}  // namespace weighlock
