#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/store/hash.hpp"
#include "weighlock/store/version_directory.hpp"
#include "weighlock/store/version_store.hpp"
#include "weighlock/tensor/quote.hpp"
#include "weighlock/tensor/values.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kCandidatesMax = 256;  // tensors whose first values are read, 400 bytes each

// Names by how surely an engine has the tensor under it, unfused and unquantised; lower is better.
int preference(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {"model.norm.weight", "input_layernorm.weight",
                                                        "norm.weight",       "embed_tokens.weight",
                                                        "lm_head.weight",    "q_proj.weight"};
  for (std::size_t i = 0; i < kEndings.size(); ++i) {
    if (name.ends_with(kEndings[i])) return static_cast<int>(i);
  }
  return static_cast<int>(kEndings.size());
}

bool has_expected_hash(std::string_view name) {
  return name.ends_with("norm.weight") || name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
}

struct Located {
  const InspectedFile* file = nullptr;
  const TensorEntry* tensor = nullptr;
  std::uint64_t bytes() const { return tensor->end - tensor->begin; }
};

// The tensors of a version whose values can be shown, the best first.
std::vector<Located> candidates(const Inspection& inspection) {
  std::vector<Located> found;
  for (const InspectedFile& file : inspection.files) {
    for (const TensorEntry& tensor : file.tensors) {
      if (has_floats(tensor.dtype) && tensor.end > tensor.begin) found.push_back({&file, &tensor});
    }
  }
  std::sort(found.begin(), found.end(), [](const Located& a, const Located& b) {
    return std::make_tuple(preference(a.tensor->name), std::string_view(a.tensor->name)) <
           std::make_tuple(preference(b.tensor->name), std::string_view(b.tensor->name));
  });
  if (found.size() > kCandidatesMax) found.resize(kCandidatesMax);
  return found;
}

// The raw bytes of the first values.
Result<std::string> leading_bytes(const VersionDirectory& directory, const Located& place) {
  const std::uint64_t width = std::max(bits(place.tensor->dtype) / 8, 1U);
  std::string bytes(std::min<std::uint64_t>(place.bytes(), limits::kSpotValuesMax * width), '\0');
  const Result<File> file = directory.open_file(place.file->name, place.file->size);
  if (!file) return file.error();
  const Status read =
      file->read_exactly(place.file->data_offset + place.tensor->begin, std::as_writable_bytes(std::span(bytes)));
  if (!read) return read.error();
  return bytes;
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

Result<std::string> sha256_of(const VersionDirectory& directory, const Located& place) {
  const Result<File> file = directory.open_file(place.file->name, place.file->size);
  if (!file) return file.error();
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1)
    return Error{ErrorCode::internal, "SHA-256 isn't available"};
  std::string buffer(std::min<std::uint64_t>(kChunkBytes, place.bytes()), '\0');
  const std::uint64_t end = place.file->data_offset + place.tensor->end;
  for (std::uint64_t at = place.file->data_offset + place.tensor->begin; at < end; at += kChunkBytes) {
    buffer.resize(std::min<std::uint64_t>(kChunkBytes, end - at));
    if (Status read = file->read_exactly(at, std::as_writable_bytes(std::span(buffer))); !read)
      return std::move(read).error();
    EVP_DigestUpdate(context.get(), buffer.data(), buffer.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  return hex(std::string_view(reinterpret_cast<const char*>(digest.data()), length));
}

TensorExpectation expectation_of(const TensorEntry& tensor) {
  TensorExpectation expectation;
  expectation.name = tensor.name;
  expectation.dtype = name(tensor.dtype);
  expectation.shape = tensor.shape;
  return expectation;
}

// Whether the leading values differ from those that the previous version has under this name. Without one, or where it
// can't be read any more, nothing is known against it.
bool differs(const VersionDirectory* previous, const Inspection* inspection, const TensorEntry& tensor,
             const std::string& leading) {
  if (previous == nullptr) return true;
  const Inspection::Place place = inspection->find_tensor(tensor.name);
  if (place.tensor == nullptr || place.tensor->dtype != tensor.dtype || place.tensor->shape != tensor.shape)
    return true;
  const Result<std::string> before = leading_bytes(*previous, {place.file, place.tensor});
  return !before || *before != leading;
}

// Up to kSpotTensorsMax tensors with leading values, those that differ before the others.
Result<std::vector<TensorExpectation>> spot_tensors(const VersionDirectory& directory,
                                                    const std::vector<Located>& places,
                                                    const VersionDirectory* previous, const Inspection* inspection) {
  std::vector<TensorExpectation> differing;
  std::vector<TensorExpectation> same;
  for (const Located& place : places) {
    if (differing.size() == limits::kSpotTensorsMax) break;
    const Result<std::string> leading = leading_bytes(directory, place);
    if (!leading) return leading.error();
    TensorExpectation expectation = expectation_of(*place.tensor);
    expectation.leading = floats_from(place.tensor->dtype, *leading);
    expectation.differs_from_previous = differs(previous, inspection, *place.tensor, *leading);
    (expectation.differs_from_previous ? differing : same).push_back(std::move(expectation));
  }
  for (TensorExpectation& expectation : same) {
    if (differing.size() == limits::kSpotTensorsMax) break;
    differing.push_back(std::move(expectation));
  }
  return differing;
}

// Adds the hash of `place` to its expectation, which is made if there is none.
Status add_hash(const VersionDirectory& directory, const Located& place, const VersionDirectory* previous,
                const Inspection* inspection, std::vector<TensorExpectation>& tensors) {
  const Result<std::string> hash = sha256_of(directory, place);
  if (!hash) return hash.error();
  const auto same_name = [&](const TensorExpectation& tensor) { return tensor.name == place.tensor->name; };
  auto found = std::find_if(tensors.begin(), tensors.end(), same_name);
  if (found == tensors.end()) {
    const Result<std::string> leading = leading_bytes(directory, place);
    if (!leading) return leading.error();
    found = tensors.insert(tensors.end(), expectation_of(*place.tensor));
    found->differs_from_previous = differs(previous, inspection, *place.tensor, *leading);
  }
  found->sha256 = *hash;
  return {};
}

// The tensors to hash, smallest first, up to the limit; what is left out goes to `notes`.
std::vector<Located> hashed_tensors(const Inspection& inspection, std::vector<std::string>* notes) {
  std::vector<Located> wanted;
  for (const InspectedFile& file : inspection.files) {
    for (const TensorEntry& tensor : file.tensors) {
      if (has_expected_hash(tensor.name)) wanted.push_back({&file, &tensor});
    }
  }
  std::sort(wanted.begin(), wanted.end(), [](const Located& a, const Located& b) {
    return std::make_tuple(a.bytes(), std::string_view(a.tensor->name)) <
           std::make_tuple(b.bytes(), std::string_view(b.tensor->name));
  });
  std::vector<Located> chosen;
  std::uint64_t total = 0;
  for (const Located& place : wanted) {
    if (place.bytes() <= kExpectedHashBytesMax - total) {
      total += place.bytes();
      chosen.push_back(place);
    } else if (notes != nullptr) {
      notes->push_back(fmt::format("{} has {} bytes and isn't hashed for the engines: the limit is {} bytes in all",
                                   quote_name(place.tensor->name), place.bytes(), kExpectedHashBytesMax));
    }
  }
  return chosen;
}

}  // namespace

Result<Expectations> VersionStore::expectations(const std::string& directory, const Inspection& inspection,
                                                const PreviousVersion* previous,
                                                std::vector<std::string>* notes) const {
  const Result<VersionDirectory> opened = VersionDirectory::open(*files_, directory, inspection.reach);
  if (!opened) return opened.error();
  std::optional<Result<VersionDirectory>> before;
  if (previous != nullptr)
    before.emplace(VersionDirectory::open(*files_, previous->directory, previous->inspection.reach));
  if (before && !*before && notes != nullptr)
    notes->push_back("the previous version can't be read: " + before->error().text());
  const VersionDirectory* before_directory = before && *before ? &before->value() : nullptr;
  const Inspection* before_inspection = previous != nullptr ? &previous->inspection : nullptr;
  Result<std::vector<TensorExpectation>> tensors =
      spot_tensors(*opened, candidates(inspection), before_directory, before_inspection);
  if (!tensors) return std::move(tensors).error();
  for (const Located& place : hashed_tensors(inspection, notes)) {
    if (Status added = add_hash(*opened, place, before_directory, before_inspection, *tensors); !added)
      return std::move(added).error();
  }
  return Expectations{std::move(*tensors)};
}

}  // namespace weighlock
