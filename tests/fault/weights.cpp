#include "weights.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock::fault {
namespace {

double bf16_at(const std::string& bytes, std::size_t index) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const std::uint32_t bits = (byte(2 * index) | byte(2 * index + 1) << 8) << 16;
  return std::bit_cast<float>(bits);
}

std::string sha256_hex(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string out;
  for (const unsigned char byte : digest) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

}  // namespace

Weights::Weights(const std::string& directory) {
  const std::string file = read_file(directory + "/model.safetensors");
  const Result<std::uint64_t> length = parse_safetensors_prefix(std::string_view(file).substr(0, 8), file.size());
  if (!length) return;
  const Result<SafetensorsHeader> header =
      parse_safetensors_header(std::string_view(file).substr(8, *length), file.size());
  if (!header) return;
  readable_ = true;
  for (const TensorEntry& tensor : header->tensors) {
    Tensor& held = tensors_[tensor.name];
    held.shape.assign(tensor.shape.begin(), tensor.shape.end());
    held.bytes = file.substr(header->data_offset + tensor.begin, tensor.end - tensor.begin);
  }
}

json::value Weights::leading(std::string_view name, std::size_t count) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return nullptr;
  const Tensor& tensor = found->second;
  const std::size_t width = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  json::array out;
  for (std::size_t row = 0; row < std::min(count, tensor.shape[0]); ++row) {
    if (tensor.shape.size() == 1) {
      out.push_back(bf16_at(tensor.bytes, row));
      continue;
    }
    json::array values;
    for (std::size_t column = 0; column < width; ++column)
      values.push_back(bf16_at(tensor.bytes, row * width + column));
    out.push_back(std::move(values));
  }
  return out;
}

json::object Weights::checksums() const {
  json::object out;
  for (const auto& [name, tensor] : tensors_) out["dp0:pp0:pcp0:tp0:" + name] = sha256_hex(tensor.bytes);
  return out;
}

}  // namespace weighlock::fault
