#include "weighlock/runtime/poller.hpp"

#include <sys/epoll.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "weighlock/core/check.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kEventsAtOnce = 256;  // then posted work and timers get their turn
constexpr std::uint32_t kBroken = EPOLLHUP | EPOLLERR;

int make_set() {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  WEIGHLOCK_CHECK(set >= 0, "the process has a descriptor left for its event loop");
  return set;
}

}  // namespace

struct Poller::Set {
  explicit Set(boost::asio::io_context& in) : context(in), descriptor(in, make_set()) {}
  int number() { return descriptor.native_handle(); }

  boost::asio::io_context& context;
  boost::asio::posix::stream_descriptor descriptor;
};

Poller::Poller(boost::asio::io_context& context) : set_(std::make_unique<Set>(context)) {}
Poller::~Poller() = default;

Poller::Id Poller::add(int descriptor) {
  const Id id = next_++;
  entries_[id].descriptor = descriptor;
  return id;
}

void Poller::remove(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  watch_for(id, entry, 0);
  armed_ -= (entry.readable ? 1 : 0) + (entry.writable ? 1 : 0);
  entries_.erase(found);
  wait_or_rest();
}

void Poller::when_readable(Id id, std::function<void()> ready) {
  set(id, &Entry::readable, EPOLLIN, std::move(ready));
}

void Poller::when_writable(Id id, std::function<void()> ready) {
  set(id, &Entry::writable, EPOLLOUT, std::move(ready));
}

void Poller::set(Id id, std::function<void()> Entry::*callback, std::uint32_t events, std::function<void()> ready) {
  Entry& entry = entries_.at(id);
  if (!(entry.*callback)) ++armed_;
  entry.*callback = std::move(ready);
  // A wait for writing ends with the first of them: nearly always a socket can be written.
  const std::uint32_t kept = entry.writable ? entry.registered : entry.registered & ~EPOLLOUT;
  watch_for(id, entry, kept | events);
  wait_or_rest();
}

void Poller::watch_for(Id id, Entry& entry, std::uint32_t events) {
  if (entry.registered == events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  const int change = events == 0 ? EPOLL_CTL_DEL : entry.registered == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const int failed = epoll_ctl(set_->number(), change, entry.descriptor, &event);
  WEIGHLOCK_CHECK(failed == 0 || events == 0, "a watched descriptor is open and pollable");
  entry.registered = events;
}

void Poller::call(Id id, std::function<void()> Entry::*callback) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || !(found->second.*callback)) return;
  --armed_;
  // Moved out first: the callback may arm again, or end the watch.
  const std::function<void()> ready = std::exchange(found->second.*callback, nullptr);
  ready();
}

void Poller::on_ready(Id id, std::uint32_t events) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;  // ended by a callback before
  Entry& entry = found->second;
  if (!entry.readable && !entry.writable) return watch_for(id, entry, 0);
  const bool readable = (events & (EPOLLIN | kBroken)) != 0;
  const bool writable = (events & (EPOLLOUT | kBroken)) != 0;
  // What nobody waits for isn't watched for any longer, or it would be reported without end.
  if ((readable && !entry.readable) || (writable && !entry.writable && (entry.registered & EPOLLOUT) != 0))
    watch_for(id, entry, (entry.readable ? EPOLLIN : 0U) | (entry.writable ? EPOLLOUT : 0U));
  if (readable) call(id, &Entry::readable);
  if (writable) call(id, &Entry::writable);
}

void Poller::serve() {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = epoll_wait(set_->number(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count && !set_->context.stopped(); ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    on_ready(event.data.u64, event.events);
  }
}

void Poller::wait_or_rest() {
  if (armed_ == 0 && waiting_) set_->descriptor.cancel();
  if (armed_ == 0 || waiting_) return;
  waiting_ = true;
  set_->descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                              [this](const boost::system::error_code& failed) {
                                if (failed && armed_ == 0) {
                                  waiting_ = false;
                                  return;
                                }
                                serve();
                                waiting_ = false;
                                wait_or_rest();
                              });
}

}  // namespace weighlock
