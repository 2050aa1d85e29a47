#include "weighlock/gateway/api/openapi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "weighlock/core/check.hpp"
#include "weighlock/gateway/api/answer.hpp"

namespace weighlock {
namespace {

struct Row {
  std::string_view method, path, summary;
  bool guarded = false;          // wants the admin key
  std::string_view body = "";    // a schema of kSchemas; "" = none
  std::string_view answer = "";  // likewise, of 200; "" = a text or an object that the summary tells
  std::string_view query = "";   // names, one blank between them
};

constexpr std::array kRows = {
    Row{"GET", "/health", "AReaL's gateway: it is there"},
    Row{"POST", "/connect", "AReaL's gateway: makes or changes a pair, and starts a lineage", true,
        "CompatibleConnect"},
    Row{"POST", "/update_weights", "AReaL's gateway: an update, answered at its end", true, "CompatibleUpdate"},
    Row{"POST", "/disconnect", "AReaL's gateway: removes a pair", true, "CompatibleDisconnect"},
    Row{"GET", "/weight_meta/{pair}/{key}", "a value that a worker left for others"},
    Row{"PUT", "/weight_meta/{pair}/{key}", "leaves a value", true, "Value"},
    Row{"DELETE", "/weight_meta/{pair}/{key}", "takes it away", true},
    Row{"PUT", "/weight_meta/{pair}/set/{key}", "adds a member to a set", true, "Value"},
    Row{"GET", "/weight_meta/{pair}/set/{key}/size", "how many members the set has", true},
    Row{"GET", "/v1/pairs", "all pairs", false, "", "PairList"},
    Row{"GET", "/v1/pairs/{pair}", "one pair; with committed_at_least and wait a long poll for a version", false, "",
        "Pair", "committed_at_least wait"},
    Row{"PUT", "/v1/pairs/{pair}", "makes or changes a pair; the same again is no change", true, "PairSpec", "Pair"},
    Row{"DELETE", "/v1/pairs/{pair}", "drains and removes a pair", true},
    Row{"POST", "/v1/pairs/{pair}/updates", "starts an update; 202 while it runs", true, "UpdateRequest", "Update",
        "wait"},
    Row{"POST", "/v1/pairs/{pair}:rollback", "goes back to a version that was committed before; 202 while it runs",
        true, "RollbackRequest", "Update", "wait"},
    Row{"GET", "/v1/pairs/{pair}/updates", "updates, newest first", false, "", "UpdateList", "limit cursor"},
    Row{"GET", "/v1/pairs/{pair}/updates/{update}", "one update", false, "", "Update", "wait"},
    Row{"POST", "/v1/pairs/{pair}/updates/{update}:cancel", "asks it to stop, before its commit", true, "", "Update"},
    Row{"GET", "/v1/pairs/{pair}/versions", "what is stored, and who needs it", false, "", "Versions"},
    Row{"POST", "/v1/pairs/{pair}/versions/{version}:verify", "reads a stored version again", true, "", "", "lineage"},
    Row{"POST", "/v1/pairs/{pair}/versions:collect", "deletes what nobody needs", true, "CollectRequest"},
    Row{"GET", "/v1/pairs/{pair}/workers", "the pair's workers", false, "", "WorkerList"},
    Row{"GET", "/v1/pairs/{pair}/workers/{worker}/ready", "whether it may get traffic: 200 or 503"},
    Row{"POST", "/v1/pairs/{pair}/workers:add", "one worker more", true, "WorkerSpec", "Pair"},
    Row{"POST", "/v1/pairs/{pair}/workers/{worker}:remove", "one worker less", true, "Reason", "Pair"},
    Row{"POST", "/v1/pairs/{pair}/workers/{worker}:drain", "it leaves the updates and serves what it holds", true,
        "Reason", "Pair"},
    Row{"POST", "/v1/pairs/{pair}/workers/{worker}:quarantine", "it is held paused", true, "Reason", "Pair"},
    Row{"POST", "/v1/pairs/{pair}/workers/{worker}:release", "it is brought to the committed version again", true,
        "Reason", "Pair"},
    Row{"POST", "/v1/pairs/{pair}/workers/{worker}:set-key", "the keys with which it is called from now on", true,
        "WorkerKeys", "Pair"},
    Row{"GET", "/v1/events", "the journal's records as server-sent events", false, "", "", "pair after"},
    Row{"GET", "/healthz", "it is alive"},
    Row{"GET", "/readyz", "it takes updates: 200 or 503"},
    Row{"GET", "/metrics", "Prometheus' text format"},
    Row{"GET", "/openapi.json", "this document"},
};

// As JSON, so that they read as they will be read. `settings` and `policy` are told apart in the text of the API.
constexpr std::string_view kSchemas = R"({
"Problem": {"type": "object", "required": ["type", "title", "status", "detail", "instance", "code"], "properties": {
  "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"},
  "instance": {"type": "string"}, "code": {"type": "string"}, "field": {"type": "string"}}},
"Cause": {"type": ["object", "null"], "properties": {"code": {"type": "string"}, "message": {"type": "string"},
  "since": {"type": "string", "format": "date-time"}}},
"Worker": {"type": "object", "required": ["id", "url", "dialect", "state"], "properties": {"id": {"type": "string"},
  "url": {"type": "string"}, "dialect": {"type": "string"}, "state": {"type": "string"},
  "version": {"type": ["integer", "null"]}, "incarnation": {"type": "string"},
  "cause": {"$ref": "#/components/schemas/Cause"}, "paused_by": {"enum": ["other"]},
  "flush_owed": {"type": "object", "properties": {
  "version": {"type": ["integer", "null"]}, "since": {"type": ["string", "null"]}, "tries": {"type": "integer"}}}}},
"WorkerList": {"type": "object", "properties": {"items": {"type": "array",
  "items": {"$ref": "#/components/schemas/Worker"}}, "next": {"type": "null"}}},
"KeyReference": {"type": ["object", "null"], "properties": {"env": {"type": "string"}, "file": {"type": "string"}}},
"WorkerSpec": {"type": "object", "required": ["url"], "additionalProperties": false, "properties": {
  "url": {"type": "string"}, "dialect": {"enum": ["auto", "sglang", "vllm"]},
  "admin_key": {"$ref": "#/components/schemas/KeyReference"}, "api_key": {"$ref": "#/components/schemas/KeyReference"}}},
"WorkerKeys": {"type": "object", "minProperties": 1, "additionalProperties": false, "properties": {
  "admin_key": {"$ref": "#/components/schemas/KeyReference"}, "api_key": {"$ref": "#/components/schemas/KeyReference"}}},
"Reason": {"type": "object", "additionalProperties": false, "properties": {"reason": {"type": "string"}}},
"Settings": {"type": "object", "properties": {
  "quorum": {"oneOf": [{"enum": ["half", "all"]}, {"type": "integer", "minimum": 1}]},
  "on_failure": {"enum": ["degrade", "rollback_all"]}, "canary": {"type": "integer", "minimum": 0},
  "max_lag": {"type": "integer", "minimum": 0}, "pause": {"enum": ["gateway", "caller", "never"]},
  "pause_mode": {"enum": ["abort", "keep", "retract", "wait"]}, "load_window": {"type": "integer", "minimum": 0},
  "straggler": {"type": "number", "minimum": 1},
  "evidence": {"enum": ["acknowledged", "label", "spot", "checksum", "probe", null]},
  "digest": {"enum": ["overlap", "before", "off"]}, "keep_versions": {"type": "integer", "minimum": 1},
  "label_format": {"type": "string"}, "allow_layout_change": {"type": "boolean"}, "coalesce": {"type": "boolean"},
  "pair_lease_ms": {"type": "integer", "minimum": 0}, "deadlines_ms": {"type": "object", "additionalProperties": false,
  "properties": {"save": {"type": "integer"}, "pause": {"type": "integer"}, "load": {"type": "integer"},
  "verify": {"type": "integer"}, "resume": {"type": "integer"}, "restore": {"type": "integer"},
  "whole": {"type": "integer"}}}}},
"PairSpec": {"type": "object", "required": ["mode", "save_path", "trainers", "workers"], "additionalProperties": false,
  "properties": {"mode": {"const": "disk"}, "save_path": {"type": "string"}, "trainers": {"type": "object",
  "additionalProperties": false, "properties": {"kind": {"enum": ["areal", "external"]}, "urls": {"type": "array",
  "items": {"type": "string"}}, "save_trigger": {"enum": ["all", "rank0"]}}},
  "workers": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/WorkerSpec"}},
  "lora": {"type": ["object", "null"], "required": ["name"], "properties": {"name": {"type": "string"},
  "keep": {"type": "integer"}}}, "settings": {"$ref": "#/components/schemas/Settings"},
  "new_lineage": {"type": "boolean"}, "keep_unnamed": {"type": "boolean", "description":
  "of a pair that is there: what the body doesn't name (settings, save_trigger, dialects, keys, lora.keep) stays as it is"}}},
"Pair": {"type": "object", "required": ["name", "lineage", "state"], "properties": {"name": {"type": "string"},
  "mode": {"type": "string"}, "lineage": {"type": "integer"}, "committed": {"type": ["integer", "null"]},
  "state": {"enum": ["idle", "updating", "removing", "dormant"]}, "rollback": {"enum": ["available", "unavailable"]},
  "workers": {"type": "object", "properties": {"total": {"type": "integer"}, "ready": {"type": "integer"},
  "quarantined": {"type": "integer"}, "paused_by_other": {"type": "integer"}}}, "worker": {"type": ["object", "null"]},
  "trainers": {"type": "array", "items": {"type": "string"}}, "transfer": {"type": ["object", "null"], "properties":
  {"colocate": {"type": "boolean"}, "group": {"type": ["string", "null"]}}}, "last_update": {"type": ["object", "null"],
  "properties": {"id": {"type": "string"}, "version": {"type": "integer"}, "rollback": {"type": "boolean"},
  "state": {"type": "string"}, "phase": {"type": ["string", "null"]}, "ended_at": {"type": ["string", "null"]},
  "error": {"type": ["string", "null"]}}},
  "save_path": {"type": "string"}, "trainer": {"type": "object", "properties": {"kind": {"type": "string"},
  "save_trigger": {"type": "string"}}},
  "settings": {"$ref": "#/components/schemas/Settings"}}},
"PairList": {"type": "object", "properties": {"items": {"type": "array",
  "items": {"$ref": "#/components/schemas/Pair"}}, "next": {"type": "null"}}},
"UpdateRequest": {"type": "object", "required": ["version"], "additionalProperties": false, "properties": {
  "version": {"type": "integer"}, "lineage": {"type": "integer"}, "path": {"type": "string"},
  "deadline_s": {"type": "number"}, "policy": {"$ref": "#/components/schemas/Settings"}}},
"RollbackRequest": {"type": "object", "additionalProperties": false, "properties": {"to": {"type": "integer"},
  "lineage": {"type": "integer"}, "deadline_s": {"type": "number"},
  "policy": {"$ref": "#/components/schemas/Settings"}}},
"Update": {"type": "object", "required": ["id", "pair", "version", "state"], "properties": {"id": {"type": "string"},
  "pair": {"type": "string"}, "lineage": {"type": "integer"}, "version": {"type": "integer"},
  "attempt": {"type": "integer"}, "rollback": {"type": "boolean"},
  "state": {"enum": ["running", "succeeded", "degraded", "rolled_back", "aborted", "rejected", "failed"]},
  "phase": {"type": "string"}, "phases": {"type": "array", "items": {"type": "object"}},
  "pause_ms": {"type": "integer"}, "bytes": {"type": ["integer", "null"]}, "workers": {"type": "array",
  "items": {"type": "object"}}, "error": {"$ref": "#/components/schemas/Cause"}}},
"UpdateList": {"type": "object", "properties": {"items": {"type": "array",
  "items": {"$ref": "#/components/schemas/Update"}}, "next": {"type": ["string", "null"]}}},
"StoredVersion": {"type": "object", "properties": {"lineage": {"type": "integer"}, "version": {"type": "integer"},
  "directory": {"type": "string"}, "state": {"enum": ["committed", "superseded", "withdrawn", "rolled_back"]},
  "handed_over": {"type": "boolean"}, "digest": {"type": ["string", "null"]}, "bytes": {"type": ["integer", "null"]},
  "leases": {"type": "array", "items": {"type": "string"}}, "removable": {"type": "boolean"}}},
"VersionName": {"type": ["object", "null"], "properties": {"lineage": {"type": "integer"},
  "version": {"type": "integer"}, "directory": {"type": "string"}}},
"Versions": {"type": "object", "properties": {"items": {"type": "array",
  "items": {"$ref": "#/components/schemas/StoredVersion"}}, "next": {"type": "null"},
  "committed": {"$ref": "#/components/schemas/VersionName"}, "last_good": {"$ref": "#/components/schemas/VersionName"},
  "highest": {"$ref": "#/components/schemas/VersionName"}}},
"CollectRequest": {"type": "object", "additionalProperties": false, "properties": {"dry_run": {"type": "boolean"}}},
"Value": {"type": "object", "required": ["value"], "properties": {"value": {}}},
"CompatibleConnect": {"type": "object", "required": ["pair_name", "train_worker_urls", "inference_worker_urls"],
  "properties": {"pair_name": {"type": "string"},
  "train_worker_urls": {"type": "array", "minItems": 1, "items": {"type": "string"}},
  "inference_worker_urls": {"type": "array", "minItems": 1, "items": {"type": "string"}},
  "mode": {"enum": ["awex", "disk"], "default": "awex"},
  "save_path": {"type": "string", "default": "", "description": "absolute; mode disk needs it, awex may have it"},
  "use_lora": {"type": "boolean", "default": false}, "lora_name": {"type": "string", "default": ""},
  "lora_keep_versions": {"type": "integer", "minimum": 0, "default": 0},
  "nccl_master_addr": {"type": "string", "default": "", "description": "empty: the first inference worker's host"},
  "nccl_master_port": {"type": "integer", "minimum": 0, "maximum": 65535, "default": 0},
  "colocate": {"type": "boolean", "default": false, "description": "mode awex only"},
  "settings": {"allOf": [{"$ref": "#/components/schemas/Settings"}], "properties": {
  "save_trigger": {"enum": ["all", "rank0"]}, "dialect": {"enum": ["auto", "sglang", "vllm"]}}}}},
"CompatibleUpdate": {"type": "object", "required": ["pair_name"], "properties": {"pair_name": {"type": "string"},
  "version": {"type": "integer"}}},
"CompatibleDisconnect": {"type": "object", "required": ["pair_name"], "properties": {
  "pair_name": {"type": "string"}}}
})";

json::object reference(std::string_view schema) {
  const json::object named{{"$ref", fmt::format("#/components/schemas/{}", schema)}};
  return json::object{{"application/json", json::object{{"schema", named}}}};
}

// The names between braces of a path, then those of the query.
json::array parameters_of(const Row& row) {
  json::array out;
  const auto add = [&](std::string_view name, const char* where, bool required) {
    out.push_back(json::object{
        {"name", name}, {"in", where}, {"required", required}, {"schema", json::object{{"type", "string"}}}});
  };
  for (std::size_t at = row.path.find('{'); at != std::string_view::npos; at = row.path.find('{', at + 1))
    add(row.path.substr(at + 1, row.path.find('}', at) - at - 1), "path", true);
  std::string_view rest = row.query;
  while (!rest.empty()) {
    const std::size_t end = rest.find(' ');
    add(rest.substr(0, end), "query", false);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return out;
}

json::object operation_of(const Row& row) {
  json::object out{{"summary", row.summary}};
  if (json::array parameters = parameters_of(row); !parameters.empty()) out["parameters"] = std::move(parameters);
  // What has to be in a body is what makes it one that can't be left out.
  if (!row.body.empty()) out["requestBody"] = json::object{{"content", reference(row.body)}};
  json::object good{{"description", "done"}};
  if (!row.answer.empty()) good["content"] = reference(row.answer);
  json::object answers{{"200", std::move(good)}};
  if (row.path.starts_with("/v1/")) {
    json::object problem{{"description", "refused or failed, with the code of the error table"}};
    problem["content"] = json::object{{"application/problem+json", reference("Problem").at("application/json")}};
    answers["default"] = std::move(problem);
  }
  out["responses"] = std::move(answers);
  json::array security;
  if (row.guarded) security.push_back(json::object{{"admin_key", json::array()}});
  out["security"] = std::move(security);
  return out;
}

std::string lowered(std::string_view method) {
  std::string out(method);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return static_cast<char>(c + ('a' - 'A')); });
  return out;
}

}  // namespace

json::object openapi_document() {
  json::object paths;
  for (const Row& row : kRows) {
    json::value& path = paths[row.path];
    if (!path.is_object()) path = json::object();
    path.as_object()[lowered(row.method)] = operation_of(row);
  }
  Result<json::value> schemas = parse_json(kSchemas, "the schemas");
  WEIGHLOCK_CHECK(schemas.has_value(), "the schemas are JSON");
  json::object components{{"schemas", *std::move(schemas)}};
  components["securitySchemes"] = json::object{{"admin_key", json::object{{"type", "http"}, {"scheme", "bearer"}}}};
  return json::object{{"openapi", "3.1.0"},
                      {"info", json::object{{"title", "Weighlock"}, {"version", "1"}}},
                      {"paths", std::move(paths)},
                      {"components", std::move(components)}};
}

std::vector<std::string> undocumented(const Router& router) {
  std::set<std::string> rows, routes;
  for (const Row& row : kRows) rows.insert(fmt::format("{} {}", row.method, row.path));
  for (const std::string& route : router.routes()) routes.insert(route);
  std::vector<std::string> out;
  std::set_symmetric_difference(rows.begin(), rows.end(), routes.begin(), routes.end(), std::back_inserter(out));
  return out;
}

void add_openapi_route(Router& router) {
  router.add("GET", "/openapi.json", [text = json_text(openapi_document())](const RouteRequest&, const Responder& to) {
    to.respond(HttpResponse{200, {{"Content-Type", "application/json"}}, text});
  });
  WEIGHLOCK_CHECK(undocumented(router).empty(), "each route is in the document, and nothing else");
}

}  // namespace weighlock
