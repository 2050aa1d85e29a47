#include "tinyengine/engine/checksums.hpp"

namespace weighlock::tiny {
namespace {

// What the part is fused into, or "" if it stands alone.
std::string fused_name(const std::string& name) {
  for (const auto& [part, whole] : {std::pair{"q_proj", "qkv_proj"},
                                    {"k_proj", "qkv_proj"},
                                    {"v_proj", "qkv_proj"},
                                    {"gate_proj", "gate_up_proj"},
                                    {"up_proj", "gate_up_proj"}}) {
    const std::string piece = std::string(".") + part + ".";
    const std::size_t at = name.find(piece);
    if (at != std::string::npos) return name.substr(0, at) + "." + whole + "." + name.substr(at + piece.size());
  }
  return name;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fused_parameters(const Llama& model) {
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const ModelTensor& spec : tensor_specs(model.shape())) {
    const std::string whole = fused_name(spec.name);
    const std::string& bytes = model.tensors().at(spec.name)->tensor.bytes;
    if (!parameters.empty() && parameters.back().first == whole) {
      parameters.back().second += bytes;
    } else {
      parameters.emplace_back(whole, bytes);
    }
  }
  return parameters;
}

bool is_packed_linear(const std::string& fused_name) {
  return fused_name.find("_proj.") != std::string::npos;
}

}  // namespace weighlock::tiny
