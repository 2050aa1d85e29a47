// Which engine of a colocated pair shares its devices with which trainers.
//
// Rank i of training and rank i of inference exchange weights through the memory of one device, so engines are numbered
// by the devices of the trainers, which are listed in the order of ranks. An engine tells its first rank's device
// alone; its further ranks are at those that follow. Source: the report of AReaL's releases that know `include_device`.
//
// Pure; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"

namespace weighlock::awex {

struct Device {
  std::string ip;  // "" where it wasn't told
  std::string id;  // of the host's: a number, or a name of the driver's
  auto operator<=>(const Device&) const = default;
};
// "10.0.0.4, device 3"
std::string text(const Device& device);

struct DeviceOf {
  std::string who;  // for errors: "worker http://10.0.0.4:30000"
  Device device;
};
// For each engine its number in the group: its ranks are number * engine_ranks and so on. As listed, if anybody doesn't
// tell a device. Error: devices_mismatched, naming both, for two that are at one device, a device of one side alone,
// and an engine whose ranks aren't at the devices of as many trainers in their order.
Result<std::vector<std::uint32_t>> engine_numbers(const std::vector<DeviceOf>& trainers,
                                                  const std::vector<DeviceOf>& engines, std::uint32_t engine_ranks);

}  // namespace weighlock::awex
