// Bodies of the compatible API: read as pydantic 2 reads them in its lax mode, refused with the same words.
//
// Pure. Extra keys are ignored here (a client of the Python gateway may send some); duplicates, NaN and Infinity are
// refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock {

// The rules for a body as a whole, for a route that reads its own. JSON is what has no content type or says so.
bool says_json(const HttpRequest& request);
HttpResponse refuse_json(const Error& failure);
HttpResponse refuse_missing_body();
// The body is JSON, or a text, but no object.
HttpResponse refuse_no_object(json::value input);

class LaxBody {
 public:
  // Reads the request's body as FastAPI does: JSON if the content type says so or is missing, else one text.
  explicit LaxBody(const HttpRequest& request);

  // Each returns the value, or the default with the failure noted. No default: the field is required.
  std::string text(std::string_view key, std::optional<std::string> otherwise = std::nullopt);
  std::vector<std::string> texts(std::string_view key);
  // Out of 64 bits: the nearest that fits, as the Python service takes any.
  std::int64_t whole(std::string_view key, std::optional<std::int64_t> otherwise = std::nullopt);
  bool flag(std::string_view key, bool otherwise);
  const json::value* any(std::string_view key) const;

  // Set after any failure: the whole body of the 422 answer.
  std::optional<HttpResponse> refusal() const;

 private:
  const json::value* member(std::string_view key, bool required);
  void fail(std::string_view type, json::array where, std::string_view message, json::value input);
  bool text_item(const json::value& value, json::array where, std::string& out);

  json::object object_;
  json::array failures_;
  std::optional<HttpResponse> whole_refusal_;
  bool small_;               // a refusal may repeat it
  bool unreadable_ = false;  // there is no object to look into
};

}  // namespace weighlock
