// The body of PUT /v1/pairs/{p}, strictly: unknown keys are refused with a suggestion, every URL and path is checked.
//
// Pure but for the keys that it references in the environment. What can't be judged here is handed on: `doubtful` and
// `key_files` go to Outside.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/gateway/confinement.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/settings.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

std::vector<std::string> worker_urls(const protocol::PairSpec& spec);

struct PairBody {
  protocol::PairSpec spec;
  std::map<std::string, Credentials> credentials;  // by worker URL; only workers that name a key
  std::vector<KeyFile> key_files;                  // keys that are still missing there
  bool new_lineage = false;                        // a run of its own begins: numbers may start again
};

// `spec.policy` of `out` holds the defaults that the settings are laid over. `present` is the pair of that name, or
// null: of a body with "keep_unnamed" each setting, the save trigger, the adapters' window, each worker's dialect and
// its keys are those of `present` unless the body names them. A pair in another mode has nothing to keep, and is
// refused.
std::optional<FieldError> read_pair_body(const json::value& value, const std::string& name,
                                         const Confinement& confinement, const protocol::PairSpec* present,
                                         PairBody& out);

// One entry of "workers", or the body of workers:add.
std::optional<FieldError> read_worker(const json::value& value, const std::string& field,
                                      const Confinement& confinement, PairBody& out);

// Shared with the compatible /connect: checks, normalises, refuses duplicates and too many. `field` names the list.
std::optional<FieldError> read_urls(const std::vector<std::string>& texts, const std::string& field, std::size_t most,
                                    const Confinement& confinement, std::vector<std::string>& out);
std::optional<FieldError> check_pair_name(const std::string& name);
// An adapter's name, as engines and people will see it: printable, short, and nothing that a path is made of.
std::optional<FieldError> check_lora_name(std::string_view name, const std::string& field);

}  // namespace weighlock
