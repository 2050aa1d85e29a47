// Requests -> handlers. Loop thread only.
//
// A pattern is a path with "{name}" for one segment; a segment may end in ":verb" ("{id}:cancel"). Segments are matched
// before they are percent-decoded, so an encoded slash stays inside its segment. A slash at the end is ignored.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/limits.hpp"
#include "weighlock/net/server.hpp"

namespace weighlock {

struct RouteRequest {
  HttpRequest http;
  std::string path;                               // without the query, not decoded
  std::map<std::string, std::string> parameters;  // decoded
  std::map<std::string, std::string> query;       // decoded; the last of equal names

  const std::string& parameter(const std::string& name) const { return parameters.at(name); }
  std::optional<std::string> query_value(const std::string& name) const;
};

class Router {
 public:
  using Handler = std::function<void(RouteRequest, Responder)>;

  // A larger body is refused with 413 before the handler sees it; one over the server's own limit never comes here.
  void add(std::string_view method, std::string_view pattern, Handler handler,
           std::size_t body_bytes_max = limits::kControlBodyBytesMax);
  void handle(HttpRequest request, Responder responder) const;
  std::vector<std::string> routes() const;  // "METHOD /pattern", in the order in which they were added

 private:
  struct Route {
    std::string method;
    std::vector<std::string> segments;
    Handler handler;
    std::size_t body_bytes_max;
  };
  std::vector<Route> routes_;
};

}  // namespace weighlock
