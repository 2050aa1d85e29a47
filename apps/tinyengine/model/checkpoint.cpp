#include "tinyengine/model/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "tinyengine/model/tokenizer.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock::tiny {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointFailure::Kind;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

Result<std::set<std::string>> indexed_files(const fs::path& path) {
  auto text = read_text(path, limits::kIndexBytesMax);
  if (!text) return std::move(text).error();
  auto index = parse_json(*text, kIndexName);
  if (!index) return std::move(index).error();
  const json::value* map = find(*index, "weight_map");
  if (!map || !map->is_object()) return Error{ErrorCode::checkpoint_invalid, "the index has no 'weight_map'"};
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string()) return Error{ErrorCode::checkpoint_invalid, "a file name of 'weight_map' isn't a string"};
    files.emplace(file.as_string().c_str());
  }
  return files;
}

std::set<std::string> present_files(const fs::path& directory) {
  std::set<std::string> files;
  std::error_code code;
  for (fs::directory_iterator at(directory, code), end; !code && at != end; at.increment(code)) {
    if (at->path().extension() == ".safetensors") files.insert(at->path().filename().string());
  }
  return files;
}

}  // namespace

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t bytes_max) {
  std::error_code code;
  const std::uint64_t size = fs::file_size(path, code);
  if (code)
    return Error{ErrorCode::checkpoint_missing, fmt::format("{}: {}", path.filename().string(), code.message())};
  if (size > bytes_max) {
    return Error{ErrorCode::too_large,
                 fmt::format("{}: {} bytes, the limit is {}", path.filename().string(), size, bytes_max)};
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return Error{ErrorCode::storage_failed, fmt::format("{}: short read", path.filename().string())};
  return text;
}

Status read_file_tensors(const std::filesystem::path& path, std::vector<Tensor>& tensors) {
  auto bytes = read_text(path, std::uint64_t{1} << 36);
  if (!bytes) return std::move(bytes).error();
  const std::string_view text = *bytes;
  auto length = parse_safetensors_prefix(text.substr(0, kSafetensorsPrefixBytes), text.size());
  if (!length) return std::move(length).error();
  auto parsed = parse_safetensors_header(text.substr(kSafetensorsPrefixBytes, *length), text.size());
  if (!parsed) return std::move(parsed).error();
  for (const TensorEntry& entry : parsed->tensors) {
    tensors.push_back({entry.name, std::string(name(entry.dtype)), entry.shape,
                       std::string(text.substr(parsed->data_offset + entry.begin, entry.end - entry.begin))});
  }
  return {};
}

CheckpointContent read_checkpoint(const std::string& directory) {
  CheckpointContent content;
  const fs::path root(directory);
  std::error_code code;
  if (!fs::is_directory(root, code)) {
    content.failure = CheckpointFailure{Kind::missing_directory, "", "no such directory"};
    return content;
  }
  std::set<std::string> files = present_files(root);
  if (files.empty()) {
    content.failure = CheckpointFailure{Kind::no_weights, "", "no *.safetensors file"};
    return content;
  }
  if (fs::exists(root / kIndexName, code)) {
    auto named = indexed_files(root / kIndexName);
    if (!named) {
      content.failure = CheckpointFailure{Kind::bad_file, std::string(kIndexName), named.error().text()};
      return content;
    }
    std::vector<std::string> missing;
    std::set_difference(named->begin(), named->end(), files.begin(), files.end(), std::back_inserter(missing));
    if (!missing.empty()) {
      content.failure =
          CheckpointFailure{Kind::missing_shard, missing.front(), "named by the index, absent", missing.size()};
      return content;
    }
    files = *std::move(named);
  }
  for (const std::string& file : files) {
    if (Status read = read_file_tensors(root / file, content.tensors); !read) {
      content.failure = CheckpointFailure{Kind::bad_file, file, read.error().text()};
      break;
    }
  }
  return content;
}

Result<ModelShape> read_shape(const std::string& directory) {
  auto text = read_text(fs::path(directory) / "config.json", limits::kConfigBytesMax);
  if (!text) return wrap(directory, std::move(text).error());
  return parse_config(*text);
}

std::string safetensors_bytes(const std::vector<Tensor>& tensors) {
  std::vector<weighlock::TensorSpec> specs;
  std::map<std::string, const Tensor*> by_name;
  for (const Tensor& tensor : tensors) {
    specs.push_back({tensor.name, dtype_from(tensor.dtype).value_or(Dtype::u8), tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  auto header = write_safetensors_header(std::move(specs));
  WEIGHLOCK_CHECK(header.has_value(), "tensors to write have distinct names and known dtypes");
  std::string bytes = std::move(header->bytes);
  for (const TensorEntry& entry : header->tensors) bytes += by_name.at(entry.name)->bytes;
  return bytes;
}

std::vector<std::vector<Tensor>> split_shards(std::vector<Tensor> tensors, std::size_t shards) {
  std::uint64_t left = 0;
  for (const Tensor& tensor : tensors) left += tensor.bytes.size();
  const std::size_t count = std::max<std::size_t>(1, std::min(shards, tensors.size()));
  std::vector<std::vector<Tensor>> parts;
  std::size_t at = 0;
  for (std::size_t part = 0; part < count; ++part) {
    const std::uint64_t share = left / (count - part);
    std::uint64_t taken = 0;
    parts.emplace_back();
    // Each later part keeps one tensor at least; the last takes all that is left.
    while (at < tensors.size() &&
           (parts.back().empty() || part + 1 == count || (taken < share && tensors.size() - at > count - part - 1))) {
      taken += tensors[at].bytes.size();
      parts.back().push_back(std::move(tensors[at++]));
    }
    left -= taken;
  }
  return parts;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Status write_text(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return Error{ErrorCode::storage_failed, fmt::format("{}: can't write {} bytes", path, bytes.size())};
  return {};
}

Status write_model_files(const std::string& directory, const ModelShape& shape) {
  const std::pair<const char*, std::string> files[] = {
      {"config.json", config_text(shape)},
      {"tokenizer.json", tokenizer_text()},
      {"tokenizer_config.json", tokenizer_config_text(shape.positions_max)},
      {"generation_config.json", generation_config_text()}};
  for (const auto& [name, text] : files) {
    if (Status wrote = write_text(directory + "/" + name, text); !wrote) return wrote;
  }
  return {};
}

Status write_index(const std::string& directory, const std::vector<std::vector<Tensor>>& parts) {
  json::object map;
  std::uint64_t total = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (const Tensor& tensor : parts[part]) {
      map[tensor.name] = shard_name(part, parts.size());
      total += tensor.bytes.size();
    }
  }
  const json::object index{{"metadata", json::object{{"total_size", total}}}, {"weight_map", std::move(map)}};
  return write_text(directory + "/" + std::string(kIndexName), json::serialize(index));
}

Status write_checkpoint(const std::string& directory, const ModelShape& shape, std::vector<Tensor> tensors,
                        std::size_t shards) {
  std::error_code code;
  fs::create_directories(directory, code);
  if (code) return Error{ErrorCode::storage_failed, fmt::format("{}: {}", directory, code.message())};
  if (Status wrote = write_model_files(directory, shape); !wrote) return wrote;
  if (shards <= 1) return write_text(directory + "/model.safetensors", safetensors_bytes(tensors));
  const auto parts = split_shards(std::move(tensors), shards);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::string path = directory + "/" + shard_name(part, parts.size());
    if (Status wrote = write_text(path, safetensors_bytes(parts[part])); !wrote) return wrote;
  }
  return write_index(directory, parts);
}

}  // namespace weighlock::tiny
