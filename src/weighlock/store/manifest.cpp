#include "weighlock/store/manifest.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kFormat = "weighlock.manifest";
constexpr std::int64_t kFormatVersion = 1;

json::object file_json(const ManifestFile& file) {
  json::object object = {{"name", file.name}, {"size", file.size}};
  if (!file.header_digest.empty()) object["header_digest"] = file.header_digest;
  if (!file.digest.empty()) object["digest"] = file.digest;
  return object;
}

json::object tensor_json(const ManifestTensor& tensor) {
  json::array shape;
  for (const std::uint64_t extent : tensor.layout.shape) shape.emplace_back(extent);
  const std::string_view dtype = name(tensor.layout.dtype);
  json::object object = {
      {"dtype", json::string_view(dtype.data(), dtype.size())}, {"shape", std::move(shape)}, {"file", tensor.file}};
  if (!tensor.digest.empty()) object["digest"] = tensor.digest;
  return object;
}

std::optional<std::uint64_t> whole_number(const json::value* value) {
  if (value == nullptr) return std::nullopt;
  if (const std::uint64_t* large = value->if_uint64()) return *large;
  const std::int64_t* small = value->if_int64();
  if (small == nullptr || *small < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*small);
}

std::string text_or_empty(const json::value& object, std::string_view key) {
  return std::string(find_string(object, key).value_or(""));
}

std::optional<ManifestFile> read_file_entry(const json::value& value) {
  const std::optional<std::string_view> file = find_string(value, "name");
  const std::optional<std::uint64_t> size = whole_number(find(value, "size"));
  if (!file || !size) return std::nullopt;
  return ManifestFile{std::string(*file), *size, text_or_empty(value, "header_digest"), text_or_empty(value, "digest")};
}

std::optional<ManifestTensor> read_tensor(const json::value& value) {
  const std::optional<std::string_view> dtype_name = find_string(value, "dtype");
  const std::optional<std::string_view> file = find_string(value, "file");
  const json::value* shape = find(value, "shape");
  if (!dtype_name || !file || shape == nullptr || !shape->is_array()) return std::nullopt;
  const std::optional<Dtype> dtype = dtype_from(*dtype_name);
  if (!dtype) return std::nullopt;
  ManifestTensor tensor;
  tensor.layout.dtype = *dtype;
  for (const json::value& extent : shape->get_array()) {
    const std::optional<std::uint64_t> number = whole_number(&extent);
    if (!number) return std::nullopt;
    tensor.layout.shape.push_back(*number);
  }
  const Result<std::uint64_t> bytes = tensor_bytes(*dtype, tensor.layout.shape);
  if (!bytes) return std::nullopt;
  tensor.layout.bytes = *bytes;
  tensor.file = *file;
  tensor.digest = text_or_empty(value, "digest");
  return tensor;
}

}  // namespace

Layout Manifest::layout() const {
  Layout layout;
  for (const auto& [name, tensor] : tensors) layout.emplace(name, tensor.layout);
  return layout;
}

std::string to_json(const Manifest& manifest) {
  json::object object = {
      {"format", json::string_view(kFormat.data(), kFormat.size())},
      {"format_version", kFormatVersion},
      {"pair", manifest.pair},
      {"lineage", manifest.lineage},
      {"version", manifest.version},
      {"attempt", manifest.attempt},
      {"writer", manifest.writer},
      {"tensor_bytes", manifest.tensor_bytes},
  };
  if (!manifest.directory.empty()) object["directory"] = manifest.directory;
  if (!manifest.digest.empty()) {
    object["digest"] = manifest.digest;
    object["digest_algorithm"] = json::string_view(kDigestAlgorithm.data(), kDigestAlgorithm.size());
  }
  json::array files;
  for (const ManifestFile& file : manifest.files) files.push_back(file_json(file));
  object["files"] = std::move(files);
  json::object tensors;
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = tensor_json(tensor);
  object["tensors"] = std::move(tensors);
  return json::serialize(object) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view what) {
  const auto invalid = [&](std::string_view why) {
    return Error{ErrorCode::checkpoint_invalid, fmt::format("{}: not a manifest of ours: {}", what, why)};
  };
  const Result<json::value> parsed = parse_json(text, what);
  if (!parsed) return wrap(ErrorCode::checkpoint_invalid, "damaged manifest", parsed.error());
  if (find_string(*parsed, "format") != kFormat) return invalid("'format' is missing or another");
  if (find_int(*parsed, "format_version") != kFormatVersion) return invalid("its format version isn't 1");
  Manifest manifest;
  const std::optional<std::int64_t> lineage = find_int(*parsed, "lineage");
  const std::optional<std::int64_t> version = find_int(*parsed, "version");
  const std::optional<std::int64_t> attempt = find_int(*parsed, "attempt");
  const std::optional<std::uint64_t> bytes = whole_number(find(*parsed, "tensor_bytes"));
  if (!lineage || !version || !attempt || !bytes)
    return invalid("lineage, version, attempt or tensor_bytes is missing");
  manifest.lineage = *lineage;
  manifest.version = *version;
  manifest.attempt = *attempt;
  manifest.tensor_bytes = *bytes;
  manifest.pair = text_or_empty(*parsed, "pair");
  manifest.writer = text_or_empty(*parsed, "writer");
  manifest.directory = text_or_empty(*parsed, "directory");
  manifest.digest = text_or_empty(*parsed, "digest");
  const json::value* files = find(*parsed, "files");
  const json::value* tensors = find(*parsed, "tensors");
  if (files == nullptr || !files->is_array() || tensors == nullptr || !tensors->is_object()) {
    return invalid("'files' or 'tensors' is missing");
  }
  for (const json::value& entry : files->get_array()) {
    std::optional<ManifestFile> file = read_file_entry(entry);
    if (!file) return invalid("an entry of 'files' has no name or size");
    manifest.files.push_back(std::move(*file));
  }
  for (const auto& member : tensors->get_object()) {
    const std::string name(member.key().data(), member.key().size());
    std::optional<ManifestTensor> tensor = read_tensor(member.value());
    if (!tensor) return invalid(fmt::format("the entry of {} can't be read", quote_name(name)));
    manifest.tensors.emplace(name, std::move(*tensor));
  }
  return manifest;
}

}  // namespace weighlock
