// A safetensors file's beginning: eight bytes of length and a header, against the size that the file is said to have.
#include "weighlock/tensor/safetensors.hpp"

#include <algorithm>

#include "check.hpp"
#include "weighlock/core/words.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  // The first byte: how long the data is that would follow.
  if (size == 0) return 0;
  const std::string_view file = fuzz::text_of(data + 1, size - 1);
  const std::uint64_t file_size = file.size() + data[0];
  const Result<std::uint64_t> length = parse_safetensors_prefix(file.substr(0, 8), file_size);
  // A header may be looked at whatever its prefix says.
  const std::string_view header_json = file.substr(std::min<std::size_t>(8, file.size()));
  if (length) WEIGHLOCK_CHECK(*length + 8 <= file_size, "a header lies within its file");
  const Result<SafetensorsHeader> header = parse_safetensors_header(header_json, file_size);
  if (!header) {
    WEIGHLOCK_CHECK(is_utf8(header.error().text()), "a refusal can be shown");
    return 0;
  }
  std::uint64_t end = 0;
  for (const auto& tensor : header->tensors) {
    WEIGHLOCK_CHECK(tensor.begin == end, "tensors lie side by side");
    WEIGHLOCK_CHECK(tensor.end >= tensor.begin, "a tensor ends after its beginning");
    end = tensor.end;
  }
  WEIGHLOCK_CHECK(header->data_offset + end == file_size, "tensors cover the file");
  return 0;
}
