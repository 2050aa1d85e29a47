#include "checkpoint.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "weighlock/tensor/safetensors.hpp"

namespace weighlock::bench {
namespace {

std::vector<TensorSpec> tensors() {
  return {{"model.embed_tokens.weight", Dtype::bf16, {16, 8}},
          {"model.layers.0.input_layernorm.weight", Dtype::bf16, {8}},
          {"model.layers.0.self_attn.q_proj.weight", Dtype::bf16, {8, 8}},
          {"model.norm.weight", Dtype::bf16, {8}},
          {"lm_head.weight", Dtype::bf16, {16, 8}}};
}

// One value for the whole version: the bits of a BF16 number between 0.0078 and 256.
std::uint16_t bits_of(std::string_view directory) {
  const std::size_t at = directory.rfind("_v");
  const unsigned version =
      at == std::string_view::npos ? 0 : static_cast<unsigned>(std::atoi(directory.data() + at + 2));
  return static_cast<std::uint16_t>(0x3c00 + version % 0x0780);
}

}  // namespace

void write_checkpoint(const std::string& directory) {
  const WrittenHeader header = *write_safetensors_header(tensors());
  std::string bytes = header.bytes;
  const std::uint16_t bits = bits_of(directory);
  for (std::uint64_t i = 0; i < header.data_bytes; i += 2) {
    bytes += static_cast<char>(bits & 0xff);
    bytes += static_cast<char>(bits >> 8);
  }
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  std::ofstream(directory + "/config.json") << R"({"tie_word_embeddings": false})";
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  file << bytes;
  file.close();
  if (file) return;
  std::fprintf(stderr, "fleet: can't write the checkpoint in '%s'\n", directory.c_str());
  std::exit(1);
}

std::string leading_values(std::string_view directory, std::string_view name) {
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits_of(directory)) << 16);
  for (const TensorSpec& tensor : tensors()) {
    if (tensor.name != name) continue;
    std::string row;
    for (std::uint64_t i = 0; i < tensor.shape.back(); ++i) row += fmt::format("{}{}", i == 0 ? "[" : ",", value);
    row += "]";
    if (tensor.shape.size() == 1) return row;
    std::string out;
    for (std::uint64_t i = 0; i < tensor.shape.front(); ++i) out += (i == 0 ? "[" : ",") + row;
    return out + "]";
  }
  return "";
}

}  // namespace weighlock::bench
