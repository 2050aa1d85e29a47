#include "tinyengine/engine/sglang_adapters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tinyengine/engine/front.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::string_view kOff = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA.";

std::string python_list(const std::list<std::shared_ptr<const ServedAdapter>>& adapters) {
  std::string text;
  for (const auto& adapter : adapters) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", adapter->name);
  return text;
}

}  // namespace

SglangAdapters::SglangAdapters(Loop& loop, std::shared_ptr<Core> core, AdapterSettings settings)
    : loop_(loop), core_(std::move(core)), settings_(std::move(settings)) {}

Status SglangAdapters::load_at_start() {
  for (const auto& [name, directory] : settings_.at_start) {
    const AdapterContent content = load_adapter(directory, core_->model()->shape(), AdapterNames::by_layer, false);
    Change change;
    change.name = name;
    change.directory = directory;
    if (const std::string error = refusal(change, content); !error.empty())
      return Error{ErrorCode::checkpoint_invalid, fmt::format("adapter '{}': {}", name, error)};
    loaded(change, content);
  }
  return {};
}

void SglangAdapters::close() {
  waiting_.clear();
  when_unused_ = nullptr;
}

void SglangAdapters::lock(std::function<void()> job) {
  if (locked_) {
    waiting_.push_back(std::move(job));
    return;
  }
  locked_ = true;
  job();
}

void SglangAdapters::unlock() {
  if (waiting_.empty()) {
    locked_ = false;
    return;
  }
  loop_.post([weak = weak_from_this(), job = std::move(waiting_.front())] {
    if (weak.lock()) job();
  });
  waiting_.pop_front();
}

void SglangAdapters::end(const Change& change, Outcome outcome) {
  unlock();
  change.then(outcome);
}

std::shared_ptr<const ServedAdapter> SglangAdapters::find(const std::string& name) const {
  const auto at = std::find_if(registry_.begin(), registry_.end(), [&](const auto& one) { return one->name == name; });
  return at == registry_.end() ? nullptr : *at;
}

json::object SglangAdapters::in_scheduler() const {
  json::object all;
  for (const auto& adapter : scheduler_) all[adapter->name] = adapter->directory;
  return all;
}

// In the order in which SGLang looks: the config, whether it is loaded, the rank, the weights.
std::string SglangAdapters::refusal(const Change& change, const AdapterContent& content) const {
  using Kind = AdapterFailure::Kind;
  const bool failed = content.adapter == nullptr;
  if (failed && content.failure.kind == Kind::missing_directory) {
    return fmt::format(
        "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{}'. Use `repo_type` argument if needed.",
        change.directory);
  }
  if (failed && content.failure.kind == Kind::no_config)
    return fmt::format("[Errno 2] No such file or directory: '{}/adapter_config.json'", change.directory);
  if (failed && content.failure.kind == Kind::bad_config) return content.failure.text;
  if (content.config.dora) {
    return fmt::format("Failed to load {} because LoRA serving currently doesn't support DoRA adapters", change.name);
  }
  const auto same = [&](const auto& one) { return one->name == change.name; };
  if (std::any_of(scheduler_.begin(), scheduler_.end(), same))
    return fmt::format("Failed to load LoRA adapter {} because it is already loaded", change.name);
  if (content.config.rank > settings_.rank_max) {
    return fmt::format(
        "LoRA adapter {} with rank {} is incompatible with the current LoRA memory pool configuration. Please ensure "
        "that the LoRA adapter's rank is within the configured `--max-lora-rank` and that the target modules are "
        "included in `--lora-target-modules`.",
        change.name, content.config.rank);
  }
  if (!failed) return "";
  if (content.failure.kind == Kind::no_weights)
    return fmt::format("Cannot find any model weights with `{}`", change.directory);
  return "Error while deserializing header: incomplete metadata, file not fully covered";
}

void SglangAdapters::loaded(const Change& change, const AdapterContent& content) {
  auto served = std::make_shared<const ServedAdapter>(ServedAdapter{change.name, change.directory, content.adapter});
  scheduler_.push_back(served);
  registry_.push_back(std::move(served));
  ever_loaded_[change.name] = change.directory;
}

void SglangAdapters::load(Change change) {
  if (settings_.rank_max == 0) {
    change.then({std::string(kOff)});
    return;
  }
  lock([self = shared_from_this(), change = std::move(change)] {
    if (self->half_unloaded_.contains(change.name)) {
      self->end(change, {fmt::format("LoRA adapter '{}' has an incomplete unload. Retry the unload before loading it "
                                     "again.",
                                     change.name)});
      return;
    }
    Core& core = *self->core_;
    core.submit(
        [self, change, &core](Core::Done done) {
          const auto content = std::make_shared<AdapterContent>();
          core.run(
              change.delay,
              [content, change, shape = core.model()->shape()] {
                *content = load_adapter(change.directory, shape, AdapterNames::by_layer, change.partial);
              },
              [self, change, content, done] {
                const std::string error = self->refusal(change, *content);
                if (error.empty()) self->loaded(change, *content);
                done();
                if (!error.empty()) {
                  self->end(change, {error, self->in_scheduler()});
                  return;
                }
                self->evict([self, change] { self->end(change, {"", self->in_scheduler()}); });
              });
        },
        change.dropped);
  });
}

// The least recently used go, each after its last request.
void SglangAdapters::evict(const std::function<void()>& then) {
  if (settings_.loaded_max == 0 || registry_.size() <= settings_.loaded_max) {
    then();
    return;
  }
  Change oldest;
  oldest.name = registry_.front()->name;
  unload_locked(oldest, [self = shared_from_this(), then](const Outcome&) { self->evict(then); });
}

void SglangAdapters::unload(Change change) {
  if (settings_.rank_max == 0) {
    change.then({std::string(kOff)});
    return;
  }
  lock([self = shared_from_this(), change = std::move(change)] {
    self->unload_locked(change, [self, change](Outcome outcome) { self->end(change, std::move(outcome)); });
  });
}

void SglangAdapters::unload_locked(const Change& change, std::function<void(Outcome)> then) {
  if (!half_unloaded_.contains(change.name)) {
    const auto adapter = find(change.name);
    if (!adapter) {
      then({fmt::format("LoRA with name {} does not exist. Loaded LoRAs: odict_keys([{}])", change.name,
                        python_list(registry_))});
      return;
    }
    registry_.remove(adapter);
    half_unloaded_[change.name] = adapter;
  }
  awaited_ = half_unloaded_.at(change.name);
  when_unused_ = [self = shared_from_this(), change, then = std::move(then)] {
    self->remove_from_scheduler(change, then);
  };
  if (users_[awaited_] == 0) std::exchange(when_unused_, nullptr)();
}

void SglangAdapters::remove_from_scheduler(const Change& change, const std::function<void(Outcome)>& then) {
  core_->submit_quick(
      [self = shared_from_this(), change, then] {
        if (change.half_unload) {
          then({"the scheduler failed to remove the adapter", self->in_scheduler()});
          return;
        }
        const auto adapter = self->half_unloaded_.at(change.name);
        std::erase(self->scheduler_, adapter);
        self->users_.erase(adapter);
        self->half_unloaded_.erase(change.name);
        then({"", self->in_scheduler()});
      },
      change.dropped);
}

void SglangAdapters::acquire(const std::string& name, Acquired then) {
  const auto invalid = [](std::string text) { return Error{ErrorCode::invalid_argument, std::move(text)}; };
  if (settings_.rank_max == 0) {
    then(invalid(
        fmt::format("LoRA adapter '{}' was requested, but LoRA is not enabled. Please launch the server with "
                    "--enable-lora flag and preload adapters using --lora-paths or /load_lora_adapter endpoint.",
                    name)));
    return;
  }
  if (const auto adapter = find(name)) {
    registry_.remove(adapter);
    registry_.push_back(adapter);
    ++users_[adapter];
    then(adapter);
    return;
  }
  const auto known = ever_loaded_.find(name);
  if (known == ever_loaded_.end()) {
    then(invalid(fmt::format("Got LoRA adapter that has never been loaded: {}", name)));
    return;
  }
  Change again;
  again.name = name;
  again.directory = known->second;
  again.then = [self = shared_from_this(), name, then, invalid](const Outcome& outcome) {
    if (!outcome.error.empty() && outcome.error.find("already loaded") == std::string::npos) {
      then(invalid(fmt::format("Failed to implicitly load LoRA adapter {}: {}", name, outcome.error)));
    } else {
      self->acquire(name, then);
    }
  };
  load(std::move(again));
}

void SglangAdapters::release(const std::shared_ptr<const ServedAdapter>& adapter) {
  const auto users = users_.find(adapter);
  if (users == users_.end() || users->second == 0) return;
  if (--users->second > 0) return;
  if (awaited_ == adapter && when_unused_) std::exchange(when_unused_, nullptr)();
}

}  // namespace weighlock::tiny
