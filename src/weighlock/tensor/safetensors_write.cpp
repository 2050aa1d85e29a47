#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/tensor/quote.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock {
namespace {

std::string json_text(std::string_view text) {
  return json::serialize(json::string_view(text.data(), text.size()));
}

std::string metadata_text(const SafetensorsMetadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", json_text(key), json_text(value));
  }
  return fmt::format("\"__metadata__\":{{{}}}", text);
}

}  // namespace

Result<WrittenHeader> write_safetensors_header(std::vector<TensorSpec> tensors, SafetensorsMetadata metadata) {
  metadata.try_emplace("format", "pt");
  // The reference writer's order: the widest dtypes first, so that tensors are aligned, then by name.
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  WrittenHeader written;
  std::string text = "{" + metadata_text(metadata);
  for (TensorSpec& tensor : tensors) {
    const Result<std::uint64_t> bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) return wrap(fmt::format("tensor {}", quote_name(tensor.name)), bytes.error());
    const std::uint64_t begin = written.data_bytes;
    if (__builtin_add_overflow(begin, *bytes, &written.data_bytes)) {
      return Error{ErrorCode::checkpoint_invalid, "the sizes of the tensors pass 64 bits together"};
    }
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", json_text(tensor.name),
                        name(tensor.dtype), shape_text(tensor.shape), begin, written.data_bytes);
    written.tensors.push_back(
        {std::move(tensor.name), tensor.dtype, std::move(tensor.shape), begin, written.data_bytes});
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t file_size = 0;
  if (__builtin_add_overflow(kSafetensorsPrefixBytes + text.size(), written.data_bytes, &file_size)) {
    return Error{ErrorCode::checkpoint_invalid, "the sizes of the tensors pass 64 bits together"};
  }
  // What we write must be what we would read: this refuses duplicate names, invalid UTF-8 and a header above the cap.
  if (Result<SafetensorsHeader> read = parse_safetensors_header(text, file_size); !read) {
    return wrap("header to be written", std::move(read).error());
  }
  for (std::size_t i = 0; i < kSafetensorsPrefixBytes; ++i) {
    written.bytes += static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xff);
  }
  written.bytes += text;
  return written;
}

}  // namespace weighlock
