#include "plan_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "weighlock/io/directory.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/io/os_error.hpp"

namespace weighlock::cli {
namespace {

// Four times what the largest known model's layout takes.
constexpr std::size_t kFileBytesMax = std::size_t{4} << 30;

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The run of digits at the front, without leading zeros; empty if there is none.
std::string_view number_at_front(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

// As people count: "rank-2" before "rank-10".
bool counts_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view left = number_at_front(a), right = number_at_front(b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      a.remove_prefix(static_cast<std::size_t>(left.data() - a.data()) + left.size());
      b.remove_prefix(static_cast<std::size_t>(right.data() - b.data()) + right.size());
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

Result<std::vector<awex::Report>> read_side(const std::string& path, awex::Side side) {
  RealFileSystem files;
  const Result<Directory> directory = Directory::open(files, path);
  if (!directory) return directory.error();
  Result<std::vector<std::string>> listed = directory->list();
  if (!listed) return std::move(listed).error();
  std::erase_if(*listed, [](const std::string& name) { return !name.ends_with(".json"); });
  if (listed->empty())
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: no file ends in .json: put each {}'s answer to POST /awex/report_weight_meta into a file "
                    "of its own",
                    path, side == awex::Side::train ? "training rank" : "engine")};
  std::sort(listed->begin(), listed->end(), counts_before);
  std::vector<awex::Report> reports;
  for (const std::string& name : *listed) {
    const std::string file = directory->path_of(name);
    const Result<std::string> text = read_whole_file(file);
    if (!text) return text.error();
    Result<awex::Report> report = awex::parse_report({side, reports.size(), file}, *text);
    if (!report) return std::move(report).error();
    reports.push_back(std::move(*report));
  }
  return reports;
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path) {
  RealFileSystem files;
  const int descriptor = files.open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
  if (descriptor < 0) return os_error(fmt::format("open '{}'", path), descriptor);
  return File(files, descriptor, path).read_text(kFileBytesMax);
}

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

Result<AwexReports> read_awex_reports(const std::string& train, const std::string& infer) {
  for (const std::string& path : {train, infer}) {
    if (struct stat found{}; ::stat(path.c_str(), &found) == 0 && !S_ISDIR(found.st_mode))
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("{}: it is no directory, and the other side is one: give two layouts, or two directories "
                      "of AWEX reports",
                      path)};
  }
  AwexReports out;
  Result<std::vector<awex::Report>> trainers = read_side(train, awex::Side::train);
  if (!trainers) return std::move(trainers).error();
  Result<std::vector<awex::Report>> engines = read_side(infer, awex::Side::infer);
  if (!engines) return std::move(engines).error();
  out.train = std::move(*trainers);
  out.infer = std::move(*engines);
  std::int64_t last = 0;
  for (const awex::ShardFrame& frame : out.infer.front().shard_frames) last = std::max(last, frame.global_rank);
  if (last < 0 || static_cast<std::uint64_t>(last) >= awex::Topology::kWorldMax)
    return Error{ErrorCode::bad_answer, fmt::format("{}: it tells of rank {}, and there can be {} at most",
                                                    out.infer.front().origin.url, last, awex::Topology::kWorldMax)};
  out.topology = {static_cast<std::uint32_t>(out.train.size()), static_cast<std::uint32_t>(last + 1),
                  static_cast<std::uint32_t>(out.infer.size())};
  return out;
}

}  // namespace weighlock::cli
