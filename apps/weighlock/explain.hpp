// How an update went and why, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/client/values.hpp"

namespace weighlock::cli {

// What a person does about a worker with this cause; "" for a word that this build doesn't know. `state`: the worker's
// present one, "" where only the cause is known: who is being brought back needs nobody.
std::string remedy(const client::Cause& cause, std::string_view state = "");

// "pair actor v42: degraded, 2 of 3 workers, pause 420 ms (save 3.1 s, load 0.4 s, ...)", then a line for each worker
// that isn't verified, with its cause and what to do, then the update's own error.
std::string explain(const client::Update& update);

// A table of workers, then what to do about those that have a cause.
std::string workers_text(const std::vector<client::Worker>& workers);
std::string version_text(const std::optional<std::int64_t>& version);  // "v3", or "-"

// Exit code of an ended update: 0 succeeded, 4 degraded, else what the table gives for its error.
int exit_code(const client::Update& update);

// Whether the worker serves what the update brought.
bool verified(const client::WorkerOutcome& worker);
bool took_part_fully(const client::WorkerOutcome& worker);

}  // namespace weighlock::cli
