// The manifest of a sealed version, and its JSON (README.md: On disk, Digests).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/tensor/layout.hpp"

namespace weighlock {

inline constexpr std::string_view kManifestName = "weighlock.manifest.json";
inline constexpr std::string_view kDigestAlgorithm = "xxh3-128/8MiB";

struct ManifestFile {
  std::string name;
  std::uint64_t size = 0;
  std::string header_digest;  // of files with tensors; "" otherwise
  std::string digest;         // "" until known
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct ManifestTensor {
  TensorLayout layout;
  std::string file;
  std::string digest;  // "" until known
  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

struct Manifest {
  std::string pair;
  std::int64_t lineage = 0;
  std::int64_t version = 0;
  std::int64_t attempt = 0;
  std::string writer;     // who sealed it, for people
  std::string directory;  // only in the manifest of a directory that others made
  std::uint64_t tensor_bytes = 0;
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestTensor, std::less<>> tensors;
  std::string digest;  // of the version; "" until known

  std::string location;  // where it lies; "" = nowhere. Not part of the JSON.

  Layout layout() const;
};

std::string to_json(const Manifest& manifest);
// `what` names the text in errors. Fields that this build doesn't know are passed over; another format version is
// refused.
Result<Manifest> parse_manifest(std::string_view text, std::string_view what);

}  // namespace weighlock
