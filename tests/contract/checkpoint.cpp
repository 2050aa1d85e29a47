#include "checkpoint.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "weighlock/core/check.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock::contract {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  WEIGHLOCK_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1,
                  "OpenSSL has SHA-256");
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

float bfloat16(std::string_view bytes, std::size_t i) {
  std::uint32_t bits = static_cast<unsigned char>(bytes[2 * i]) << 16U;
  bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[2 * i + 1])) << 24U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

TensorExpectation expectation(std::string name, const json::value& entry, std::string_view data) {
  TensorExpectation tensor;
  tensor.name = std::move(name);
  tensor.dtype = std::string(find_string(entry, "dtype").value_or(""));
  WEIGHLOCK_CHECK(tensor.dtype == "BF16", "the contract suite's models are BF16");
  for (const json::value& extent : find(entry, "shape")->get_array())
    tensor.shape.push_back(extent.to_number<std::uint64_t>());
  const json::array& offsets = find(entry, "data_offsets")->get_array();
  const auto begin = offsets.at(0).to_number<std::size_t>();
  const std::string_view bytes = data.substr(begin, offsets.at(1).to_number<std::size_t>() - begin);
  for (std::size_t i = 0; i < std::min(limits::kSpotValuesMax, bytes.size() / 2); ++i)
    tensor.leading.push_back(bfloat16(bytes, i));
  tensor.sha256 = sha256(bytes);
  return tensor;
}

}  // namespace

std::shared_ptr<const Expectations> expectations_of(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  WEIGHLOCK_CHECK(!files.empty(), "WEIGHLOCK_ENGINE_MODELS holds the good models");
  auto made = std::make_shared<Expectations>();
  for (const auto& path : files) {
    const std::string bytes = read_file(path);
    std::uint64_t length = 0;
    WEIGHLOCK_CHECK(bytes.size() >= sizeof length, "a safetensors file has a header");
    std::memcpy(&length, bytes.data(), sizeof length);  // little-endian, as every machine that runs this
    const std::string_view all = bytes;
    const Result<json::value> header = parse_json(all.substr(8, length), path.string());
    WEIGHLOCK_CHECK(header.has_value(), "a safetensors header is JSON");
    for (const auto& entry : header->get_object()) {
      if (entry.key() == "__metadata__") continue;
      made->tensors.push_back(
          expectation(std::string(entry.key().data(), entry.key().size()), entry.value(), all.substr(8 + length)));
    }
  }
  return made;
}

}  // namespace weighlock::contract
