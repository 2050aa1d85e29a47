#include "weighlock/awex/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>

namespace weighlock::awex {
namespace {

using Ranks = std::map<Device, std::size_t>;  // of training, by device

Error mismatched(std::string_view what) {
  return Error{ErrorCode::devices_mismatched, fmt::format("devices of colocated workers: {}", what), nullptr};
}

// The device `steps` behind this one; none if devices aren't numbered.
std::optional<Device> behind(const Device& device, std::uint32_t steps) {
  std::uint32_t number = 0;
  const char* const end = device.id.data() + device.id.size();
  const auto [at, error] = std::from_chars(device.id.data(), end, number);
  if (error != std::errc() || at != end || number > UINT32_MAX - steps) return std::nullopt;
  return Device{device.ip, fmt::format("{}", number + steps)};
}

// Whether training's rank may be where the engine's rank is, `steps` behind its first: at the very device, or on
// another host, of which the engine tells nothing.
bool may_share(const DeviceOf& engine, std::uint32_t steps, std::size_t rank, const std::vector<DeviceOf>& trainers,
               const Ranks& ranks) {
  const std::optional<Device> device = behind(engine.device, steps);
  if (!device) return true;
  const auto there = ranks.find(*device);
  return there == ranks.end() ? trainers[rank].device.ip != engine.device.ip : there->second == rank;
}

// What is left of training where an engine is somewhere else, with a word before it; "" if nothing is.
std::string left_alone(const std::vector<DeviceOf>& trainers, const std::vector<DeviceOf>& engines,
                       std::uint32_t engine_ranks) {
  for (std::size_t rank = 0; rank < trainers.size(); rank += engine_ranks) {
    const auto there = [&](const DeviceOf& engine) { return engine.device == trainers[rank].device; };
    if (std::none_of(engines.begin(), engines.end(), there))
      return fmt::format(", and {} is at {}, where no worker is", trainers[rank].who, text(trainers[rank].device));
  }
  return "";
}

Result<std::uint32_t> number_of(const DeviceOf& engine, const std::vector<DeviceOf>& trainers,
                                const std::vector<DeviceOf>& engines, const Ranks& ranks, std::uint32_t engine_ranks) {
  const auto found = ranks.find(engine.device);
  if (found == ranks.end())
    return mismatched(
        fmt::format("{} is at {}, where no trainer is{}: a colocated pair has one of each side on every device",
                    engine.who, text(engine.device), left_alone(trainers, engines, engine_ranks)));
  const std::size_t first = found->second;
  if (first % engine_ranks != 0 || trainers.size() - first < engine_ranks)
    return mismatched(fmt::format(
        "{} begins at {}, as does {}, rank {} of {}: an engine of {} ranks shares the devices of "
        "as many trainers, from a rank that {} divides",
        engine.who, text(engine.device), trainers[first].who, first, trainers.size(), engine_ranks, engine_ranks));
  for (std::uint32_t i = 1; i < engine_ranks; ++i) {
    if (may_share(engine, i, first + i, trainers, ranks)) continue;
    return mismatched(
        fmt::format("rank {} of {}, which begins at {}, is at {}, and {}, rank {} of training, at {}: each "
                    "rank of an engine shares the device of the trainer of its number",
                    i, engine.who, text(engine.device), text(*behind(engine.device, i)), trainers[first + i].who,
                    first + i, text(trainers[first + i].device)));
  }
  return static_cast<std::uint32_t>(first / engine_ranks);
}

}  // namespace

std::string text(const Device& device) {
  return fmt::format("{}, device {}", device.ip, device.id);
}

Result<std::vector<std::uint32_t>> engine_numbers(const std::vector<DeviceOf>& trainers,
                                                  const std::vector<DeviceOf>& engines, std::uint32_t engine_ranks) {
  std::vector<std::uint32_t> numbers(engines.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto silent = [](const DeviceOf& one) { return one.device.ip.empty(); };
  if (std::any_of(trainers.begin(), trainers.end(), silent) || std::any_of(engines.begin(), engines.end(), silent))
    return numbers;
  const auto twice = [](const DeviceOf& one, const DeviceOf& other) {
    return mismatched(
        fmt::format("{} and {} are both at {}: list each worker once", one.who, other.who, text(other.device)));
  };
  Ranks ranks;
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    const auto [same, is_new] = ranks.emplace(trainers[i].device, i);
    if (!is_new) return twice(trainers[same->second], trainers[i]);
  }
  std::map<std::uint32_t, std::size_t> taken;  // by number
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const Result<std::uint32_t> number = number_of(engines[i], trainers, engines, ranks, engine_ranks);
    if (!number) return number.error();
    const auto [same, is_new] = taken.emplace(*number, i);
    if (!is_new) return twice(engines[same->second], engines[i]);
    numbers[i] = *number;
  }
  for (std::size_t rank = 0; rank < trainers.size(); ++rank) {
    if (taken.contains(static_cast<std::uint32_t>(rank / engine_ranks))) continue;
    return mismatched(
        fmt::format("{} is at {}, where no worker is: a colocated pair has one of each side on every device",
                    trainers[rank].who, text(trainers[rank].device)));
  }
  return numbers;
}

}  // namespace weighlock::awex
