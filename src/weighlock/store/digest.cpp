#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "weighlock/store/adapter.hpp"
#include "weighlock/store/hash.hpp"
#include "weighlock/store/version_directory.hpp"
#include "weighlock/store/version_store.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kBufferAlignment = std::size_t{2}
                                         << 20;  // a huge page: direct reads and the kernel's copies like it

struct FreeBuffer {
  void operator()(std::byte* buffer) const { std::free(buffer); }
};

// One pass over a version's files.
class Reading {
 public:
  Reading(const VersionDirectory& directory, const Inspection& inspection, const DigestControl& control)
      : directory_(directory),
        inspection_(inspection),
        control_(control),
        buffer_(static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, kChunkBytes))) {}

  Result<Digest> take() {
    if (!buffer_) return Error{ErrorCode::internal, "no memory for a buffer of 8 MiB"};
    for (const InspectedFile& file : inspection_.files) {
      if (Status read = read_file(file); !read) return std::move(read).error();
    }
    finish_version();
    return std::move(digest_);
  }

 private:
  Status read_file(const InspectedFile& inspected) {
    Result<File> file = directory_.open_file(inspected.name, inspected.size);
    if (!file) return std::move(file).error();
    next_ = 0;
    if (inspected.holds_tensors) {
      header_.clear();
      file_digests_.clear();
    }
    for (std::uint64_t offset = 0; offset < inspected.size; offset += kChunkBytes) {
      if (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed)) {
        return Error{ErrorCode::cancelled, fmt::format("the digest of '{}' was cancelled", directory_.path())};
      }
      const std::size_t bytes = std::min<std::uint64_t>(kChunkBytes, inspected.size - offset);
      if (Status read = file->read_exactly(offset, std::span(buffer_.get(), bytes)); !read) return read;
      const std::string_view piece(reinterpret_cast<const char*>(buffer_.get()), bytes);
      inspected.holds_tensors ? take_piece(inspected, offset, piece) : run_.update(piece);
      digest_.bytes += bytes;
      if (control_.progress) control_.progress(digest_.bytes, inspection_.file_bytes);
    }
    const Result<std::uint64_t> size = file->size();
    if (!size) return size.error();
    if (*size != inspected.size) {
      return Error{ErrorCode::checkpoint_invalid,
                   fmt::format("'{}' changed while it was read: it had {} bytes and has {}", file->path(),
                               inspected.size, *size)};
    }
    return finish_file(inspected);
  }

  // `piece` lies at `offset` of the file; gives each part of it to the header or to its tensor.
  void take_piece(const InspectedFile& file, std::uint64_t offset, std::string_view piece) {
    if (offset < file.data_offset) {
      const std::size_t step = std::min<std::uint64_t>(piece.size(), file.data_offset - offset);
      header_ += piece.substr(0, step);
      piece.remove_prefix(step);
      offset += step;
    }
    while (!piece.empty()) {
      end_tensors(file, offset);
      const std::uint64_t end = file.data_offset + file.tensors[next_].end;
      const std::size_t step = std::min<std::uint64_t>(piece.size(), end - offset);
      run_.update(piece.substr(0, step));
      piece.remove_prefix(step);
      offset += step;
    }
  }

  // Finishes the tensors that end at `offset` or before.
  void end_tensors(const InspectedFile& file, std::uint64_t offset) {
    while (next_ < file.tensors.size() && file.data_offset + file.tensors[next_].end <= offset) {
      const std::string digest = run_.finish();
      file_digests_ += digest;
      digest_.tensors[file.tensors[next_].name] = hex(digest);
      ++next_;
    }
  }

  Status finish_file(const InspectedFile& inspected) {
    if (!inspected.holds_tensors) {
      digest_.files[inspected.name] = hex(run_.finish());
      return {};
    }
    end_tensors(inspected, inspected.size);
    const std::string header = digest_bytes(header_);
    if (hex(header) != inspected.header_digest) {
      return Error{ErrorCode::checkpoint_invalid, fmt::format("'{}/{}': its header changed since it was inspected",
                                                              directory_.path(), inspected.name)};
    }
    digest_.files[inspected.name] = hex(digest_bytes(header + file_digests_));
    return {};
  }

  void finish_version() {
    std::string lines;
    const auto add_line = [&](std::string_view name, std::string_view dtype, std::string_view shape,
                              std::string_view digest) {
      for (const std::string_view field : {name, dtype, shape}) {
        lines += field;
        lines += '\0';
      }
      lines += digest;
      lines += '\n';
    };
    for (const auto& [tensor, digest] : digest_.tensors) {
      const TensorLayout& layout = inspection_.layout.at(tensor);
      add_line(tensor, name(layout.dtype), shape_text(layout.shape), digest);
    }
    // The same tensors with another scale are another adapter.
    if (inspection_.is_lora) add_line(kAdapterConfigName, "", "", digest_.files.find(kAdapterConfigName)->second);
    digest_.version = hex(digest_bytes(lines));
    warn_of_untied_head();
  }

  void warn_of_untied_head() {
    const auto head = digest_.tensors.find("lm_head.weight");
    const auto embedding = digest_.tensors.find("model.embed_tokens.weight");
    if (inspection_.tied != TiedHead::yes || head == digest_.tensors.end() || embedding == digest_.tensors.end())
      return;
    if (head->second != embedding->second) {
      digest_.warnings.push_back(
          "config.json ties lm_head.weight to model.embed_tokens.weight, but their bytes differ: engines "
          "disagree about which one they use");
    }
  }

  const VersionDirectory& directory_;
  const Inspection& inspection_;
  const DigestControl& control_;
  std::unique_ptr<std::byte, FreeBuffer> buffer_;
  Digest digest_;
  RunHash run_;               // of the tensor, or of the file without tensors, that is being read
  std::size_t next_ = 0;      // tensor of the file
  std::string header_;        // of the file
  std::string file_digests_;  // of the file's tensors so far
};

}  // namespace

Result<Digest> VersionStore::digest(const std::string& directory, const Inspection& inspection,
                                    const DigestControl& control) const {
  const Result<VersionDirectory> opened = VersionDirectory::open(*files_, directory, inspection.reach);
  if (!opened) return opened.error();
  return Reading(*opened, inspection, control).take();
}

}  // namespace weighlock
