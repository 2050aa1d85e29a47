// `weighlock ckpt inspect|verify DIR`: reads the directory itself; no gateway is asked.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <ostream>

#include "table.hpp"
#include "terminal.hpp"
#include "weighlock/store/version_store.hpp"

namespace weighlock::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What was found, step by step; a step that failed is told by the Error that ended it.
struct Finding {
  Inspection inspection;
  std::optional<Manifest> manifest;
  std::optional<Digest> digest;
  bool compared = false;  // with digests that the manifest has
};

Error differs(std::string_view what, std::string_view name, const std::string& expected, const std::string& actual) {
  return Error{ErrorCode::checkpoint_invalid,
               fmt::format("{} '{}': the manifest says {}, the bytes give {}: it was changed or damaged after the seal",
                           what, name, expected, actual)};
}

// Every digest that the manifest has must be that of the bytes; tensors first, since they name the place best.
Result<bool> compare(const Manifest& manifest, const Digest& digest) {
  bool compared = false;
  for (const auto& [name, tensor] : manifest.tensors) {
    const auto actual = digest.tensors.find(name);
    if (tensor.digest.empty() || actual == digest.tensors.end()) continue;
    compared = true;
    if (actual->second != tensor.digest) return differs("tensor", name, tensor.digest, actual->second);
  }
  for (const ManifestFile& file : manifest.files) {
    const auto actual = digest.files.find(file.name);
    if (file.digest.empty() || actual == digest.files.end()) continue;
    compared = true;
    if (actual->second != file.digest) return differs("file", file.name, file.digest, actual->second);
  }
  if (manifest.digest.empty()) return compared;
  if (digest.version != manifest.digest) return differs("version", manifest.location, manifest.digest, digest.version);
  return true;
}

class DigestProgress {
 public:
  explicit DigestProgress(Terminal& terminal) : terminal_(terminal) {}
  void at(std::uint64_t done, std::uint64_t total) {
    if (!terminal_.live) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (seconds <= 0 || done == 0) return;
    const double rate = static_cast<double>(done) / seconds;
    terminal_.err << fmt::format(
                         "\r\x1b[Kverify  {} of {}  {}/s  ETA {}", bytes_text(static_cast<std::int64_t>(done)),
                         bytes_text(static_cast<std::int64_t>(total)), bytes_text(static_cast<std::int64_t>(rate)),
                         duration_text(static_cast<std::int64_t>(static_cast<double>(total - done) / rate * 1000)))
                  << std::flush;
    shown_ = true;
  }
  ~DigestProgress() {
    if (shown_) terminal_.err << "\n";
  }

 private:
  Terminal& terminal_;
  Clock::time_point start_ = Clock::now();
  bool shown_ = false;
};

Result<Finding> look(const CheckpointArguments& arguments, const std::string& directory, Terminal& terminal) {
  RealFileSystem files;
  const VersionStore store(files);
  InspectOptions options;
  options.wait_visible = Milliseconds(0);  // a person looks now, not while it is being saved
  if (arguments.follow) options.reach.follow = Follow::anywhere;
  options.is_lora = std::filesystem::exists(directory + "/adapter_config.json");
  Result<Inspection> inspection = store.inspect(directory, options);
  if (!inspection) return std::move(inspection).error();
  Finding finding;
  finding.inspection = std::move(*inspection);
  if (std::filesystem::exists(fmt::format("{}/{}", directory, kManifestName))) {
    Result<Manifest> manifest = store.load_manifest(directory);
    if (!manifest) return std::move(manifest).error();
    if (Status sealed = store.verify_sealed(directory, options.reach); !sealed) return std::move(sealed).error();
    finding.manifest = std::move(*manifest);
  }
  if (!arguments.verify) return finding;
  DigestProgress progress(terminal);
  DigestControl control;
  control.progress = [&](std::uint64_t done, std::uint64_t total) { progress.at(done, total); };
  Result<Digest> digest = store.digest(directory, finding.inspection, control);
  if (!digest) return std::move(digest).error();
  finding.digest = std::move(*digest);
  if (finding.manifest) {
    Result<bool> compared = compare(*finding.manifest, *finding.digest);
    if (!compared) return std::move(compared).error();
    finding.compared = *compared;
  }
  return finding;
}

std::string verdict(const Finding& finding, bool verified) {
  if (!finding.manifest)
    return verified ? "sound, not sealed: there is nothing to compare the digest with" : "sound, not sealed";
  if (!verified) return "sound, sealed";
  return finding.compared ? "verified: every byte is as it was sealed"
                          : "sound, sealed without digests: there is nothing to compare with";
}

json::object as_json(const Finding& finding, const std::string& directory, bool verified) {
  json::array files, warnings;
  for (const InspectedFile& file : finding.inspection.files)
    files.push_back(json::object{{"name", file.name}, {"size", file.size}, {"tensors", file.tensors.size()}});
  for (const std::string& warning : finding.inspection.warnings) warnings.emplace_back(warning);
  json::object out{{"directory", directory}, {"ok", true}};
  out["verdict"] = verdict(finding, verified);
  out["tensors"] = finding.inspection.layout.size();
  out["tensor_bytes"] = finding.inspection.tensor_bytes;
  out["sealed"] = finding.manifest.has_value();
  out["version"] = finding.manifest ? json::value(finding.manifest->version) : json::value(nullptr);
  out["compared"] = finding.compared;
  out["digest"] = finding.digest ? json::value(finding.digest->version) : json::value(nullptr);
  out["files"] = std::move(files);
  out["warnings"] = std::move(warnings);
  return out;
}

std::string as_text(const Finding& finding, const std::string& directory, bool verified) {
  std::map<std::string_view, std::size_t> dtypes;
  for (const auto& [tensor, layout] : finding.inspection.layout) ++dtypes[name(layout.dtype)];
  std::string kinds;
  for (const auto& [dtype, count] : dtypes) kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, dtype);
  std::string text = fmt::format("{}: {}\n", directory, verdict(finding, verified));
  text += fmt::format("  {} tensors ({}), {}\n", finding.inspection.layout.size(), kinds,
                      bytes_text(static_cast<std::int64_t>(finding.inspection.tensor_bytes)));
  if (finding.manifest)
    text += fmt::format("  version {} of pair {}, lineage {}, attempt {}\n", finding.manifest->version,
                        finding.manifest->pair, finding.manifest->lineage, finding.manifest->attempt);
  if (finding.digest) text += fmt::format("  digest {}\n", finding.digest->version);
  for (const std::string& warning : finding.inspection.warnings)
    text += fmt::format("  warning: {}\n", one_line(warning));
  std::vector<std::vector<std::string>> rows;
  for (const InspectedFile& file : finding.inspection.files) {
    const std::string tensors = file.holds_tensors ? fmt::format("{}", file.tensors.size()) : "-";
    rows.push_back({one_line(file.name), bytes_text(static_cast<std::int64_t>(file.size)), tensors});
  }
  return text + table({"FILE", "SIZE", "TENSORS"}, rows);
}

}  // namespace

int run_checkpoint(const CheckpointArguments& arguments, Terminal& terminal) {
  const std::string directory = std::filesystem::absolute(arguments.directory).lexically_normal().string();
  Result<Finding> finding = look(arguments, directory, terminal);
  if (!finding) return report(terminal, finding.error(), arguments.json);
  if (arguments.json) {
    print_json(terminal, as_json(*finding, directory, arguments.verify));
  } else {
    terminal.out << as_text(*finding, directory, arguments.verify);
  }
  return 0;
}

}  // namespace weighlock::cli
