#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "weighlock/io/directory.hpp"
#include "weighlock/store/hash.hpp"
#include "weighlock/store/paths.hpp"
#include "weighlock/store/save_path.hpp"
#include "weighlock/store/version_directory.hpp"
#include "weighlock/store/version_store.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kManifestBytesMax = std::size_t{256} << 20;  // about 300 bytes a tensor, digests included

Manifest make_manifest(const std::string& directory, const Inspection& inspection, const SealInfo& info) {
  Manifest manifest;
  manifest.pair = info.pair;
  manifest.lineage = info.lineage;
  manifest.version = info.version;
  manifest.attempt = info.attempt;
  manifest.writer = info.writer;
  manifest.tensor_bytes = inspection.tensor_bytes;
  if (info.foreign) manifest.directory = directory;
  for (const InspectedFile& file : inspection.files) {
    manifest.files.push_back({file.name, file.size, file.header_digest, ""});
    for (const TensorEntry& tensor : file.tensors) {
      const TensorLayout layout{tensor.dtype, tensor.shape, tensor.end - tensor.begin};
      manifest.tensors.emplace(tensor.name, ManifestTensor{layout, file.name, ""});
    }
  }
  return manifest;
}

// Whether `sealed`, perhaps completed meanwhile, is of what was inspected.
bool same_content(const Manifest& sealed, const Manifest& wanted) {
  const auto same_file = [](const ManifestFile& a, const ManifestFile& b) {
    return a.name == b.name && a.size == b.size && a.header_digest == b.header_digest;
  };
  return sealed.lineage == wanted.lineage && sealed.version == wanted.version && sealed.attempt == wanted.attempt &&
         std::equal(sealed.files.begin(), sealed.files.end(), wanted.files.begin(), wanted.files.end(), same_file);
}

Result<Manifest> read_manifest(const Directory& directory, const std::string& name) {
  const Result<File> file = directory.open_file(name, Follow::no);
  if (!file) {
    if (file.error().code != ErrorCode::not_found) return file.error();
    return wrap(ErrorCode::checkpoint_missing, fmt::format("'{}' is not sealed", directory.path()), file.error());
  }
  const Result<std::string> text = file->read_text(kManifestBytesMax);
  if (!text) return text.error();
  Result<Manifest> manifest = parse_manifest(*text, fmt::format("'{}'", file->path()));
  if (manifest) manifest->location = file->path();
  return manifest;
}

// The files' bytes, durable before the manifest that vouches for them.
Status sync_files(VersionDirectory& directory, const Inspection& inspection) {
  for (const InspectedFile& inspected : inspection.files) {
    Result<File> file = directory.open_file(inspected.name, inspected.size);
    if (!file) return std::move(file).error();
    if (Status synced = file->sync(); !synced) return synced;
    if (Status closed = file->close(); !closed) return closed;
  }
  return directory.directory().sync();
}

Result<Manifest> write_manifest(Directory& directory, const std::string& name, Manifest manifest) {
  const Result<Manifest> present = read_manifest(directory, name);
  if (present) {
    if (same_content(*present, manifest)) return present;
    // A foreign directory may be written anew by its owner and handed over again; one of ours is sealed once.
    if (manifest.directory.empty()) {
      return Error{ErrorCode::conflict,
                   fmt::format("'{}' is sealed already, as version {} of lineage {} with other files", directory.path(),
                               present->version, present->lineage)};
    }
  } else if (present.error().code != ErrorCode::checkpoint_missing) {
    return present;
  }
  if (Status written = directory.replace_file(name, to_json(manifest)); !written) {
    if (manifest.directory.empty())
      (void)directory.remove_file(name).has_value();  // what isn't surely durable isn't sealed
    return wrap("the version is not sealed", std::move(written).error());
  }
  manifest.location = directory.path_of(name);
  return manifest;
}

std::string foreign_name(const std::string& directory) {
  return fmt::format("{}-{}.json", name_of(directory).substr(0, 128), hex(digest_bytes(directory)).substr(0, 16));
}

Status check_file(const VersionDirectory& directory, const ManifestFile& listed) {
  const Result<File> file = directory.open_file(listed.name, listed.size);
  if (!file) {
    if (file.error().code != ErrorCode::not_found) return file.error();
    return wrap(ErrorCode::checkpoint_missing, fmt::format("the manifest names {}", quote_name(listed.name)),
                file.error());
  }
  if (listed.header_digest.empty()) return {};
  std::string bytes(kSafetensorsPrefixBytes, '\0');
  if (Status read = file->read_exactly(0, std::as_writable_bytes(std::span(bytes))); !read) return read;
  const Result<std::uint64_t> length = parse_safetensors_prefix(bytes, listed.size);
  if (!length) return wrap(fmt::format("'{}'", file->path()), length.error());
  bytes.resize(kSafetensorsPrefixBytes + *length);
  if (Status read = file->read_exactly(0, std::as_writable_bytes(std::span(bytes))); !read) return read;
  const std::string digest = hex(digest_bytes(bytes));
  if (digest == listed.header_digest) return {};
  return Error{ErrorCode::checkpoint_invalid, fmt::format("'{}': its header has the digest {}, the manifest says {}",
                                                          file->path(), digest, listed.header_digest)};
}

}  // namespace

Result<Manifest> VersionStore::seal(const std::string& directory, const Inspection& inspection,
                                    const SealInfo& info) const {
  Result<VersionDirectory> opened = VersionDirectory::open(*files_, directory, inspection.reach);
  if (!opened) return std::move(opened).error();
  if (Status synced = sync_files(*opened, inspection); !synced) {
    return wrap(fmt::format("'{}' can't be sealed", directory), std::move(synced).error());
  }
  Manifest manifest = make_manifest(directory, inspection, info);
  if (!info.foreign) return write_manifest(opened->directory(), std::string(kManifestName), std::move(manifest));
  if (info.save_path.empty()) return manifest;
  Result<Directory> manifests = open_own_folder(*files_, info.save_path, "manifests");
  if (!manifests) return std::move(manifests).error();
  return write_manifest(*manifests, foreign_name(directory), std::move(manifest));
}

Result<Manifest> VersionStore::load_manifest(const std::string& directory) const {
  const Result<Directory> opened = Directory::open(*files_, directory);
  if (!opened) return opened.error();
  return read_manifest(*opened, std::string(kManifestName));
}

Result<Manifest> VersionStore::load_foreign_manifest(const std::string& save_path, const std::string& directory) const {
  const Result<Directory> manifests = open_own_folder(*files_, save_path, "manifests");
  if (!manifests) return manifests.error();
  return read_manifest(*manifests, foreign_name(directory));
}

Status VersionStore::verify_sealed(const std::string& directory, const Reach& reach) const {
  const Result<VersionDirectory> opened = VersionDirectory::open(*files_, directory, reach);
  if (!opened) return opened.error();
  const Result<Manifest> manifest = read_manifest(opened->directory(), std::string(kManifestName));
  return manifest ? verify_against(*manifest, directory, reach) : manifest.error();
}

Status VersionStore::verify_against(const Manifest& manifest, const std::string& directory, const Reach& reach) const {
  const Result<VersionDirectory> opened = VersionDirectory::open(*files_, directory, reach);
  if (!opened) return opened.error();
  for (const ManifestFile& file : manifest.files) {
    if (Status checked = check_file(*opened, file); !checked) return checked;
  }
  const Result<std::vector<std::string>> names = opened->directory().list();
  if (!names) return names.error();
  for (const std::string& name : *names) {
    if (name.starts_with('.') || !name.ends_with(".safetensors")) continue;
    const auto known = [&](const ManifestFile& file) { return file.name == name; };
    if (std::any_of(manifest.files.begin(), manifest.files.end(), known)) continue;
    return Error{ErrorCode::checkpoint_invalid,
                 fmt::format("'{}/{}' came after the seal: the manifest doesn't name it", directory, name)};
  }
  return {};
}

Status compare_digest(const Manifest& manifest, const Digest& digest) {
  constexpr std::size_t kNamedMax = 8;
  std::vector<std::string> named;
  std::size_t count = 0;
  const auto compare = [&](std::string_view name, const std::string& sealed, const auto& read) {
    const auto found = read.find(name);
    if (sealed.empty() || (found != read.end() && found->second == sealed)) return;
    if (++count <= kNamedMax) named.push_back(quote_name(name));
  };
  for (const auto& [name, tensor] : manifest.tensors) compare(name, tensor.digest, digest.tensors);
  for (const ManifestFile& file : manifest.files) compare(file.name, file.digest, digest.files);
  if (count == 0 && (manifest.digest.empty() || manifest.digest == digest.version)) return {};
  return Error{
      ErrorCode::conflict,
      fmt::format("sealed bytes were changed: version {} has the digest {}, its manifest says {}; {} tensors and files "
                  "differ: {}",
                  manifest.version, digest.version, manifest.digest, count, fmt::join(named, ", "))};
}

Result<Manifest> VersionStore::complete_manifest(Manifest manifest, const Digest& digest) const {
  if (Status same = compare_digest(manifest, digest); !same) return std::move(same).error();
  for (ManifestFile& file : manifest.files) {
    const auto found = digest.files.find(file.name);
    if (found != digest.files.end()) file.digest = found->second;
  }
  for (auto& [name, tensor] : manifest.tensors) {
    const auto found = digest.tensors.find(name);
    if (found != digest.tensors.end()) tensor.digest = found->second;
  }
  manifest.digest = digest.version;
  if (manifest.location.empty()) return manifest;
  Result<Directory> directory = Directory::open(*files_, parent_of(manifest.location));
  if (!directory) return std::move(directory).error();
  // The manifest without digests is as right as the one with them, should the power fail: either is found whole.
  const std::string name = name_of(manifest.location);
  if (Status written = directory->replace_file(name, to_json(manifest), Durable::content); !written) {
    return wrap("the digests are not recorded", std::move(written).error());
  }
  return manifest;
}

}  // namespace weighlock
