#include "weighlock/store/epoch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/io/access.hpp"
#include "weighlock/store/hash.hpp"
#include "weighlock/store/paths.hpp"
#include "weighlock/store/save_path.hpp"

namespace weighlock {
namespace {

constexpr const char* kEpochsFolder = "epochs";
constexpr std::string_view kPrefix = "epoch.";
constexpr std::size_t kDigitsMax = 18;  // all such numbers fit in 64 bits
constexpr std::int64_t kNumberMax = 999'999'999'999'999'999;
constexpr std::size_t kFileBytesMax = 16 * 1024 * 1024;  // 4096 workers with the longest URLs
constexpr int kTakenMax = 100;                           // others that were faster, one after the other
constexpr std::size_t kFolderNameMax = 200;              // of NAME_MAX, 255

bool is_safe(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// Letters and digits as they are, any other byte as %xx. A long name is cut and ends in its digest; "~" is in no other.
std::string folder_name(const std::string& pair) {
  std::string out;
  for (const char c : pair) {
    if (is_safe(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (out.empty()) return "%";  // a pair without a name
  if (out.size() <= kFolderNameMax) return out;
  return out.substr(0, kFolderNameMax - 40) + "~" + hex(digest_bytes(pair));
}

std::string file_name(std::int64_t number) {
  return fmt::format("{}{}", kPrefix, number);
}

// 0: not a name of ours.
std::int64_t number_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  if (name.empty() || name.size() > kDigitsMax || name.front() == '0') return 0;
  std::int64_t number = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return 0;
    number = number * 10 + (c - '0');
  }
  return number;
}

std::string text_of(const std::string& pair, const EpochRecord& record) {
  json::array paused;
  json::array in_doubt;  // a list of its own: whoever knows only the other one undoes nobody else's pause
  for (const EpochWorker& worker : record.paused) {
    json::array& list = worker.held ? paused : in_doubt;
    list.push_back(json::object{{"url", worker.url}, {"incarnation", worker.incarnation}, {"label", worker.label}});
  }
  return json::serialize(json::object{{"epoch", record.number},
                                      {"pair", pair},
                                      {"owner", record.owner},
                                      {"host", record.host},
                                      {"started", record.started},
                                      {"written_at", record.written_at},
                                      {"paused", std::move(paused)},
                                      {"in_doubt", std::move(in_doubt)}}) +
         "\n";
}

std::string member(const json::value& body, std::string_view key) {
  return std::string(find_string(body, key).value_or(""));
}

EpochRecord unreadable(std::int64_t number, std::string why) {
  EpochRecord out;
  out.number = number;
  out.remark = std::move(why);
  return out;
}

EpochRecord parse(std::int64_t number, const std::string& text, const std::string& path) {
  const Result<json::value> body = parse_json(text, path);
  if (!body) return unreadable(number, body.error().text());
  EpochRecord out;
  out.number = number;
  out.owner = member(*body, "owner");
  out.host = member(*body, "host");
  out.started = member(*body, "started");
  out.written_at = member(*body, "written_at");
  if (out.owner.empty()) return unreadable(number, fmt::format("'{}' names no owner", path));
  if (find_int(*body, "epoch") != number)
    return unreadable(number, fmt::format("'{}' is the file of another epoch, put there by hand", path));
  const json::value* list = find(*body, "paused");
  if (!list || !list->is_array()) return unreadable(number, fmt::format("'{}' has no list 'paused'", path));
  const auto add = [&](const json::value& from, bool held) {
    for (const json::value& one : from.get_array())
      out.paused.push_back({member(one, "url"), member(one, "incarnation"), member(one, "label"), held});
  };
  add(*list, true);
  if (const json::value* in_doubt = find(*body, "in_doubt"); in_doubt && in_doubt->is_array()) add(*in_doubt, false);
  std::erase_if(out.paused, [](const EpochWorker& worker) { return worker.url.empty(); });
  return out;
}

// `not_found` if it went meanwhile. What isn't a file of ours is taken all the same, by whom nobody can tell.
Result<EpochRecord> read(const Directory& folder, std::int64_t number) {
  const Result<File> file = folder.open_file(file_name(number), Follow::no);
  if (!file) {
    if (file.error().code == ErrorCode::invalid_argument || file.error().code == ErrorCode::permission_denied)
      return unreadable(number, file.error().text());
    return file.error();
  }
  const Result<std::string> text = file->read_text(kFileBytesMax);
  if (!text) {
    const ErrorCode code = text.error().code;
    if (code == ErrorCode::checkpoint_invalid || code == ErrorCode::too_large)  // no regular file, cut short, or huge
      return unreadable(number, text.error().text());
    return text.error();
  }
  return parse(number, *text, file->path());
}

Result<std::vector<std::int64_t>> numbers_in(const Directory& folder) {
  const Result<std::vector<std::string>> names = folder.list();
  if (!names) return names.error();
  std::vector<std::int64_t> numbers;
  for (const std::string& name : *names) {
    if (const std::int64_t number = number_in(name); number > 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<EpochRecord> highest_in(const Directory& folder) {
  for (int tries = 0; tries < kTakenMax; ++tries) {
    const Result<std::vector<std::int64_t>> numbers = numbers_in(folder);
    if (!numbers) return numbers.error();
    if (numbers->empty()) return EpochRecord{};
    Result<EpochRecord> found = read(folder, numbers->back());
    if (found || found.error().code != ErrorCode::not_found) return found;  // else it was removed since
  }
  return Error{ErrorCode::storage_failed, fmt::format("'{}': files come and go while they are read", folder.path())};
}

// The highest one below `number`, if another owner has it.
Result<std::optional<EpochRecord>> predecessor_of(const Directory& folder, std::int64_t number,
                                                  const std::string& owner) {
  const Result<std::vector<std::int64_t>> numbers = numbers_in(folder);
  if (!numbers) return numbers.error();
  const auto below = std::lower_bound(numbers->begin(), numbers->end(), number);
  if (below == numbers->begin()) return std::optional<EpochRecord>();
  Result<EpochRecord> found = read(folder, *std::prev(below));
  if (!found && found.error().code == ErrorCode::not_found) return std::optional<EpochRecord>();
  if (!found) return std::move(found).error();
  if (found->owner == owner) return std::optional<EpochRecord>();
  return std::optional<EpochRecord>(*std::move(found));
}

// False: nothing new was in `more`.
bool add_missing(std::vector<EpochWorker>& list, const std::vector<EpochWorker>& more) {
  const std::size_t before = list.size();
  for (const EpochWorker& worker : more) {
    if (std::find(list.begin(), list.end(), worker) == list.end()) list.push_back(worker);
  }
  return list.size() > before;
}

// Of no use to anyone: best effort.
void remove_old(Directory& folder, std::int64_t number, const std::string& owner) {
  const Result<std::vector<std::int64_t>> numbers = numbers_in(folder);
  if (!numbers) return;
  const auto present = std::upper_bound(numbers->begin(), numbers->end(), number);
  if (present - numbers->begin() <= kEpochsKept) return;
  for (auto it = numbers->begin(); it != present - kEpochsKept; ++it) {
    const Result<EpochRecord> old = read(folder, *it);
    if (old && old->owner == owner) (void)folder.remove_file(file_name(*it));
  }
}

Error blind(FileSystem& files, const std::string& save_path, Error error) {
  return wrap(ErrorCode::storage_not_visible, describe_access(files, save_path), std::move(error));
}

bool is_blindness(const Error& error) {
  return error.code == ErrorCode::permission_denied || error.code == ErrorCode::not_found;
}

// A handle that the file server no longer knows is trouble, not blindness: the next look opens anew.
Error told(FileSystem& files, const std::string& save_path, Error error) {
  if (is_blindness(error)) return blind(files, save_path, std::move(error));
  if (error.code == ErrorCode::storage_not_visible)
    return wrap(ErrorCode::storage_failed, "the storage lost track of it", std::move(error));
  return error;
}

Result<Directory> make_folder(FileSystem& files, const std::string& save_path, const std::string& pair) {
  Result<Directory> parent = open_save_path(files, save_path);
  if (!parent) return parent;
  Result<Directory> epochs = open_own_folder(files, save_path, kEpochsFolder);
  if (!epochs) return epochs;
  return epochs->ensure_directory(folder_name(pair));
}

// Our file again, with the list. Its name is ours.
Status write_over(Directory& folder, const std::string& pair, const EpochRecord& mine) {
  return folder.replace_file(file_name(mine.number), text_of(pair, mine));
}

Result<EpochClaim> take(Directory& folder, const std::string& pair, EpochRecord mine) {
  const std::vector<EpochWorker> own = mine.paused;
  for (int tries = 0; tries < kTakenMax; ++tries) {
    const Result<EpochRecord> top = highest_in(folder);
    if (!top) return top.error();
    const bool is_ours = top->owner == mine.owner;
    if (!is_ours && top->number >= kNumberMax)
      return Error{ErrorCode::conflict, fmt::format("'{}' has the highest number that there is: remove it",
                                                    folder.path_of(file_name(top->number)))};
    mine.number = is_ours ? top->number : top->number + 1;
    mine.paused = own;
    add_missing(mine.paused, top->paused);  // whoever dies right after this leaves nobody's pause untold
    Status written =
        is_ours ? write_over(folder, pair, mine) : folder.publish_file(file_name(mine.number), text_of(pair, mine));
    if (!written && written.error().code == ErrorCode::conflict) continue;  // another was faster
    if (!written) return std::move(written).error();
    EpochClaim out;
    out.number = mine.number;
    Result<std::optional<EpochRecord>> before = predecessor_of(folder, mine.number, mine.owner);
    if (!before) return std::move(before).error();
    out.predecessor = *std::move(before);
    if (out.predecessor && add_missing(mine.paused, out.predecessor->paused)) {
      if (Status again = write_over(folder, pair, mine); !again) return std::move(again).error();
    }
    remove_old(folder, mine.number, mine.owner);
    return out;
  }
  return Error{ErrorCode::conflict,
               fmt::format("'{}': {} epochs were taken by others meanwhile", folder.path(), kTakenMax)};
}

// Who else has this number or a higher one. What can't be read under our own number is ours to write again.
Result<std::optional<EpochRecord>> another(const Directory& folder, const EpochRecord& mine) {
  Result<EpochRecord> top = highest_in(folder);
  if (!top) return std::move(top).error();
  const bool torn = top->number == mine.number && top->owner.empty();
  if (torn || top->number < mine.number || top->owner == mine.owner) return std::optional<EpochRecord>();
  return std::optional<EpochRecord>(*std::move(top));
}

}  // namespace

std::string EpochStore::folder_of(const std::string& save_path, const std::string& pair) {
  return fmt::format("{}/{}/{}/{}", save_path, kOwnFolder, kEpochsFolder, folder_name(pair));
}

Result<EpochRecord> EpochStore::highest(const std::string& save_path, const std::string& pair) const {
  const Result<std::string> path = normal_path(save_path);
  if (!path) return path.error();
  Result<Directory> root = Directory::open(*files_, *path);
  if (!root) return told(*files_, *path, std::move(root).error());
  const std::string way = fmt::format("{}/{}/{}", kOwnFolder, kEpochsFolder, folder_name(pair));
  const Result<Directory> folder = root->open_directory(way, Follow::no);
  if (!folder && folder.error().code == ErrorCode::not_found) return EpochRecord{};
  if (!folder) return told(*files_, *path, folder.error());
  Result<EpochRecord> found = highest_in(*folder);
  if (!found) return told(*files_, *path, std::move(found).error());
  return found;
}

Result<EpochClaim> EpochStore::claim(const std::string& save_path, const std::string& pair, EpochRecord mine) const {
  const Result<std::string> path = normal_path(save_path);
  if (!path) return path.error();
  Result<Directory> folder = make_folder(*files_, *path, pair);
  if (!folder) return told(*files_, *path, std::move(folder).error());
  Result<EpochClaim> taken = take(*folder, pair, std::move(mine));
  if (!taken) return told(*files_, *path, std::move(taken).error());
  return taken;
}

Result<EpochClaim> EpochStore::rewrite(const std::string& save_path, const std::string& pair,
                                       const EpochRecord& mine) const {
  const Result<std::string> path = normal_path(save_path);
  if (!path) return path.error();
  Result<Directory> folder = make_folder(*files_, *path, pair);
  if (!folder) return told(*files_, *path, std::move(folder).error());
  EpochClaim out;
  out.number = mine.number;
  Result<std::optional<EpochRecord>> other = another(*folder, mine);
  if (other && !*other) {
    if (Status written = write_over(*folder, pair, mine); !written)
      return told(*files_, *path, std::move(written).error());
    other = another(*folder, mine);
  }
  if (!other) return told(*files_, *path, std::move(other).error());
  out.superseded_by = *std::move(other);
  return out;
}

}  // namespace weighlock
