#include "tinyengine/engine/core.hpp"

#include <algorithm>
#include <chrono>

namespace weighlock::tiny {
namespace {

constexpr std::size_t kRunningMax = 64;        // requests in one step
constexpr std::size_t kPrefillTokensMax = 64;  // of one request in one step, so that a step stays short

}  // namespace

Core::Core(Loop& loop, Pool& pool, Settings settings, std::shared_ptr<const Llama> model, std::string directory)
    : loop_(loop),
      pool_(pool),
      settings_(settings),
      model_(std::move(model)),
      directory_(std::move(directory)),
      prefixes_(settings.prefix_block) {}

void Core::submit(std::function<void(Done)> work, std::function<void()> dropped) {
  if (dead_) {
    if (dropped) dropped();
    return;
  }
  operations_.push_back({std::move(work), std::move(dropped)});
  wake();
}

void Core::submit_quick(std::function<void()> work, std::function<void()> dropped) {
  submit(
      [work = std::move(work)](Done done) {
        work();
        done();
      },
      std::move(dropped));
}

void Core::generate(std::shared_ptr<Generation> generation) {
  if (dead_) {
    end(generation, Finish::died);
    return;
  }
  generation->arrival = ++arrivals_;
  waiting_.push_back(std::move(generation));
  wake();
}

void Core::wake() {
  if (wake_posted_) return;
  wake_posted_ = true;
  loop_.post([self = weak_from_this()] {
    if (const auto core = self.lock()) {
      core->wake_posted_ = false;
      core->go_on();
    }
  });
}

void Core::go_on() {
  if (dead_ || frozen_ || busy_) return;
  if (!operations_.empty()) {
    start_operation();
    return;
  }
  admit();
  if (running_.empty()) {
    for (const auto& then : std::exchange(drained_, {})) then();
    return;
  }
  if (hold_ == Hold::all) return;
  if (doomed()) {
    die();
    return;
  }
  start_step();
}

void Core::start_operation() {
  busy_ = true;
  Operation operation = std::move(operations_.front());
  operations_.pop_front();
  current_dropped_ = std::move(operation.dropped);
  operation.work([self = weak_from_this()] {
    const auto core = self.lock();
    if (!core || core->dead_) return;
    core->busy_ = false;
    core->current_dropped_ = {};
    core->wake();
  });
}

void Core::admit() {
  if (hold_ != Hold::none) return;
  while (!waiting_.empty() && running_.size() < kRunningMax) {
    const auto generation = waiting_.front();
    waiting_.pop_front();
    const auto tokens = generation->tokens();
    // The last token is always computed: its logits are what is asked for. So are prompt tokens whose logprobs are
    // wanted.
    const std::size_t limit =
        std::min(tokens.size() - 1, generation->request.prompt_logprobs_from.value_or(tokens.size()));
    generation->cache = prefixes_.find(tokens, generation->request.adapter.get(), limit, model_->shape());
    if (generation->retractions == 0) generation->cached_tokens = generation->cache.length;
    running_.push_back(generation);
  }
}

void Core::start_step() {
  busy_ = true;
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<const Llama>> models;
  for (const auto& generation : running_) models.push_back(model_for(generation->request.adapter));
  pool_.run(
      [batch = running_, models = std::move(models), label = label_] {
        for (std::size_t i = 0; i < batch.size(); ++i) batch[i]->advance(*models[i], label, kPrefillTokensMax);
      },
      [self = weak_from_this(), started] {
        const auto core = self.lock();
        if (!core || core->dead_) return;
        const auto took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - started);
        const auto finish = [self] {
          const auto later = self.lock();
          if (!later || later->dead_) return;
          later->when_thawed([self] {
            if (const auto thawed = self.lock(); thawed && !thawed->dead_) thawed->end_step();
          });
        };
        if (took >= core->settings_.step_least) {
          finish();
        } else {
          core->loop_.after(core->settings_.step_least - took, finish);
        }
      });
}

std::shared_ptr<const Llama> Core::model_for(const std::shared_ptr<const ServedAdapter>& adapter) {
  if (!adapter) return model_;
  std::erase_if(merged_, [this](const Merged& one) { return one.base != model_ || one.adapter.expired(); });
  for (const Merged& one : merged_) {
    if (one.adapter.lock() == adapter) return one.model;
  }
  merged_.push_back({model_, adapter, merged(*model_, *adapter->adapter)});
  return merged_.back().model;
}

void Core::end_step() {
  busy_ = false;
  for (const auto& generation : std::vector(running_)) {
    if (generation->on_token && !generation->output.empty()) generation->on_token(*generation);
    if (generation->finish) {
      std::erase(running_, generation);
      end(generation, *generation->finish);
    }
  }
  wake();
}

void Core::end(const std::shared_ptr<Generation>& generation, Finish finish) {
  if (finish != Finish::died)
    prefixes_.keep(generation->tokens(), generation->request.adapter, std::move(generation->cache));
  if (const auto on_end = std::exchange(generation->on_end, {})) on_end(*generation, finish);
  generation->on_token = {};
}

std::size_t Core::abort(const std::function<bool(const Generation&)>& which) {
  std::vector<std::shared_ptr<Generation>> ended;
  std::copy_if(running_.begin(), running_.end(), std::back_inserter(ended), [&](const auto& g) { return which(*g); });
  std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(ended), [&](const auto& g) { return which(*g); });
  std::erase_if(running_, [&](const auto& g) { return which(*g); });
  std::erase_if(waiting_, [&](const auto& g) { return which(*g); });
  for (const auto& generation : ended) end(generation, Finish::abort);
  return ended.size();
}

std::size_t Core::abort_arrived(std::uint64_t count) {
  return abort([count](const Generation& generation) { return generation.arrival <= count; });
}

void Core::retract_all() {
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    (*at)->retract();
    waiting_.push_front(*at);
  }
  running_.clear();
}

void Core::set_hold(Hold hold) {
  hold_ = hold;
  wake();
}

void Core::when_drained(std::function<void()> then) {
  if (running_.empty()) {
    then();
    return;
  }
  drained_.push_back(std::move(then));
  wake();
}

void Core::load(Milliseconds delay, std::string directory, Loader loader, std::function<void(const LoadReport&)> then) {
  const auto report = std::make_shared<LoadReport>();
  const auto job = [report, loader = std::move(loader), model = model_, dirt = dirt_] {
    *report = loader(*model, dirt);
  };
  run(delay, job, [this, report, directory = std::move(directory), then = std::move(then)] {
    model_ = report->model;
    dirt_ = report->dirt;
    if (report->ok) directory_ = directory;
    then(*report);
  });
}

void Core::run(Milliseconds delay, std::function<void()> job, std::function<void()> then) {
  const auto finish = [self = weak_from_this(), then = std::move(then)] {
    const auto core = self.lock();
    if (!core || core->dead_) return;
    core->when_thawed([self, then] {
      if (const auto thawed = self.lock(); thawed && !thawed->dead_) then();
    });
  };
  const auto start = [self = weak_from_this(), job = std::move(job), finish] {
    if (const auto core = self.lock(); core && !core->dead_) core->pool_.run(job, finish);
  };
  if (delay.count() > 0) {
    loop_.after(delay, start);
  } else {
    start();
  }
}

void Core::when_thawed(std::function<void()> then) {
  if (frozen_) {
    thawed_.push_back(std::move(then));
  } else {
    then();
  }
}

void Core::thaw() {
  frozen_ = false;
  for (const auto& then : std::exchange(thawed_, {})) then();
  wake();
}

void Core::die() {
  if (dead_) return;
  dead_ = true;
  std::vector<std::function<void()>> dropped;
  dropped.push_back(std::move(current_dropped_));
  for (Operation& operation : operations_) dropped.push_back(std::move(operation.dropped));
  operations_.clear();
  drained_.clear();
  thawed_.clear();
  auto ended = std::move(running_);
  ended.insert(ended.end(), waiting_.begin(), waiting_.end());
  running_.clear();
  waiting_.clear();
  for (const auto& then : dropped) {
    if (then) then();
  }
  for (const auto& generation : ended) end(generation, Finish::died);
}

}  // namespace weighlock::tiny
