// The body of PUT /v1/pairs/{p}, strictly: unknown keys are refused with a suggestion, every URL and path is checked.
//
// Pure but for the keys that it references (environment, files).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "weighlock/gateway/confinement.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/settings.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

struct PairBody {
  protocol::PairSpec spec;
  std::map<std::string, Credentials> credentials;  // by worker URL; only workers that name a key
  bool new_lineage = false;                        // a run of its own begins: numbers may start again
};

// `spec.policy` of `out` holds the defaults that the settings are laid over.
std::optional<FieldError> read_pair_body(const json::value& value, const std::string& name,
                                         const Confinement& confinement, PairBody& out);

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
