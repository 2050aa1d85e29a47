// Small checkpoints for tests, and a store over a file system that can be made to fail. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/io/faulty_file_system.hpp"
#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/store/version_store.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock {

// A weights file whose bytes follow from the tensors' names and `seed`.
inline std::string weights_file(const std::vector<TensorSpec>& tensors, unsigned seed = 1) {
  const WrittenHeader header = *write_safetensors_header(tensors);
  std::string bytes = header.bytes;
  for (const TensorEntry& tensor : header.tensors) {
    unsigned state = seed;
    for (const char c : tensor.name) state = state * 31 + static_cast<unsigned char>(c);
    // Bits that give small finite numbers in every float type: 0x3fXX.
    for (std::uint64_t i = tensor.begin; i < tensor.end; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += (i - tensor.begin) % 2 == 1 ? '\x3f' : static_cast<char>(state >> 24 & 0x7f);
    }
  }
  return bytes;
}

inline std::vector<TensorSpec> tiny_tensors() {
  return {{"model.embed_tokens.weight", Dtype::bf16, {16, 8}},
          {"model.layers.0.input_layernorm.weight", Dtype::bf16, {8}},
          {"model.layers.0.self_attn.q_proj.weight", Dtype::bf16, {8, 8}},
          {"model.norm.weight", Dtype::bf16, {8}},
          {"lm_head.weight", Dtype::bf16, {16, 8}}};
}

// One file and a config.
inline void write_single(const std::string& directory, const std::vector<TensorSpec>& tensors = tiny_tensors(),
                         unsigned seed = 1) {
  write_file(directory + "/config.json", R"({"tie_word_embeddings": false})");
  write_file(directory + "/model.safetensors", weights_file(tensors, seed));
}

inline const char* const kShard1 = "model-00001-of-00002.safetensors";
inline const char* const kShard2 = "model-00002-of-00002.safetensors";

inline void write_index(const std::string& directory, const std::map<std::string, std::string>& map,
                        std::uint64_t total_size) {
  json::object weight_map;
  for (const auto& [tensor, file] : map) weight_map[tensor] = file;
  write_file(directory + "/model.safetensors.index.json",
             json::serialize(json::object{{"metadata", {{"total_size", total_size}}}, {"weight_map", weight_map}}));
}

// Two shards (a and b in the first, c in the second), an index, a config.
inline void write_sharded(const std::string& directory) {
  write_file(directory + "/config.json", "{}");
  write_file(directory + "/" + kShard1, weights_file({{"a", Dtype::bf16, {4}}, {"b", Dtype::f32, {2, 2}}}));
  write_file(directory + "/" + kShard2, weights_file({{"c", Dtype::bf16, {8}}}));
  write_index(directory, {{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}, 8 + 16 + 16);
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() { files.sync_is_free = true; }

  // Time passes only while somebody sleeps.
  Patience patience() {
    return {[this] { return now; },
            [this](Milliseconds pause) {
              now = now + pause;
              ++sleeps;
              if (on_sleep) on_sleep();
            }};
  }
  Result<Inspection> inspect(const std::string& directory, InspectOptions options = {}) {
    return store.inspect(directory, options);
  }
  // The words of a refusal, with its code in front; "accepted" if there was none.
  std::string refusal(const std::string& directory, const InspectOptions& options = {}) {
    const Result<Inspection> inspected = store.inspect(directory, options);
    return inspected ? "accepted" : std::string(info(inspected.error().code).type) + ": " + inspected.error().text();
  }
  void expect_refused(const std::string& directory, const std::vector<std::string>& words,
                      const InspectOptions& options = {}) {
    const std::string text = refusal(directory, options);
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "\nwanted: " << word;
  }
  Manifest seal(const std::string& directory) {
    const SealInfo seal_info{"actor", 2, 42, 3, "gateway-1", false, ""};
    return store.seal(directory, inspect(directory).value(), seal_info).value();
  }

  TemporaryDirectory root;
  std::string version = root.path("weight_update_v42");
  RealFileSystem real;
  FaultyFileSystem files{real};
  Instant now;
  int sleeps = 0;
  std::function<void()> on_sleep;
  VersionStore store{files, patience()};
};

}  // namespace weighlock
