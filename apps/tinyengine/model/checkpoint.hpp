// Checkpoint directories: read as engines read them, and written as trainers write them.
//
// Blocking file I/O: call from a pool. Reading keeps what came before a failure, because an engine has applied that
// much.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyengine/model/shape.hpp"
#include "tinyengine/model/tensor.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

struct CheckpointFailure {
  enum class Kind { missing_directory, no_weights, missing_shard, bad_file };
  Kind kind = Kind::bad_file;
  std::string file;  // base name, where one is to blame
  std::string text;
  std::size_t missing = 0;  // shards that the index names and the directory lacks
};

struct CheckpointContent {
  std::vector<Tensor> tensors;  // in the order of files and offsets
  std::optional<CheckpointFailure> failure;
};

// With an index: the files that it names, others ignored. Without: every *.safetensors file in the order of names, as
// the loaders of SGLang and vLLM glob them. With a `missing_shard` no file is read.
CheckpointContent read_checkpoint(const std::string& directory);
Result<ModelShape> read_shape(const std::string& directory);
// The parts of it: a small file whole; the tensors of one safetensors file, appended in the order of offsets.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t bytes_max);
Status read_file_tensors(const std::filesystem::path& path, std::vector<Tensor>& tensors);

// The bytes of a safetensors file: header padded to a multiple of 8, metadata {"format":"pt"}.
std::string safetensors_bytes(const std::vector<Tensor>& tensors);

// Cuts `tensors` into at most `shards` consecutive parts of about equal bytes, none of them empty unless there are
// fewer tensors.
std::vector<std::vector<Tensor>> split_shards(std::vector<Tensor> tensors, std::size_t shards);
std::string shard_name(std::size_t index, std::size_t count);  // "model-00001-of-00002.safetensors", index from 0

Status write_text(const std::string& path, std::string_view bytes);
// config.json, tokenizer.json, tokenizer_config.json, generation_config.json
Status write_model_files(const std::string& directory, const ModelShape& shape);
// model.safetensors.index.json for these parts
Status write_index(const std::string& directory, const std::vector<std::vector<Tensor>>& parts);
// The whole directory, made if absent: one `model.safetensors`, or `shards` files with an index.
Status write_checkpoint(const std::string& directory, const ModelShape& shape, std::vector<Tensor> tensors,
                        std::size_t shards = 1);

}  // namespace weighlock::tiny
