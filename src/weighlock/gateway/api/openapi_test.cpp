// The document against the server that serves it.
#include "weighlock/gateway/api/openapi.hpp"

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

class OpenApi : public NativeTest {};

// "/v1/pairs/{pair}/workers/{worker}:drain" with something in each brace.
std::string filled(std::string path) {
  for (std::size_t at = path.find('{'); at != std::string::npos; at = path.find('{'))
    path.replace(at, path.find('}') - at + 1, "x");
  return path;
}

TEST_F(OpenApi, every_operation_of_the_document_is_answered_by_a_route_of_its_own) {
  start();
  const Reply served = call("GET", "/openapi.json");
  ASSERT_EQ(served.status, 200);
  const json::value document = served.json();
  EXPECT_EQ(document.at("openapi").as_string(), "3.1.0");
  int operations = 0;
  for (const auto& [path, methods] : document.at("paths").as_object()) {
    for (const auto& [method, operation] : methods.as_object()) {
      ++operations;
      std::string word(method);
      for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      if (std::string(path) == "/v1/events") continue;  // without an end
      const Reply reply = call(word, filled(std::string(path)), word == "GET" ? json::value(nullptr) : json::object{});
      EXPECT_NE(reply.status, 405) << word << " " << path;
      EXPECT_EQ(reply.body.find("Not Found"), std::string::npos) << word << " " << path << ": " << reply.body;
      EXPECT_FALSE(operation.at("summary").as_string().empty());
    }
  }
  EXPECT_GT(operations, 30);
}

TEST_F(OpenApi, what_is_guarded_in_the_document_is_guarded_by_the_server) {
  start();
  const json::object document = openapi_document();
  for (const auto& [path, methods] : document.at("paths").as_object()) {
    if (!std::string(path).starts_with("/v1/") || std::string(path) == "/v1/events") continue;
    for (const auto& [method, operation] : methods.as_object()) {
      std::string word(method);
      for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      const bool guarded = !operation.at("security").as_array().empty();
      EXPECT_EQ(raw_call(word, filled(std::string(path)), word == "GET" ? "" : "{}", {}).status == 401, guarded)
          << word << " " << path;
    }
  }
}

TEST_F(OpenApi, every_schema_that_is_named_is_there) {
  const json::object document = openapi_document();
  const std::string text = json::serialize(document);
  const std::string mark = "#/components/schemas/";
  const json::object& schemas = document.at("components").at("schemas").as_object();
  // Boost.JSON escapes no slash.
  int found = 0;
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::size_t begin = at + mark.size();
    const std::string name = text.substr(begin, text.find('"', begin) - begin);
    EXPECT_TRUE(schemas.contains(name)) << name;
    ++found;
  }
  EXPECT_GT(found, 30);
}

TEST_F(OpenApi, a_route_without_a_row_and_a_row_without_a_route_are_named) {
  Router router;
  router.add("GET", "/v1/secret", [](const RouteRequest&, const Responder&) {});
  router.add("GET", "/healthz", [](const RouteRequest&, const Responder&) {});
  const std::vector<std::string> differences = undocumented(router);
  const auto has = [&](const std::string& route) {
    return std::find(differences.begin(), differences.end(), route) != differences.end();
  };
  EXPECT_TRUE(has("GET /v1/secret"));
  EXPECT_FALSE(has("GET /healthz"));
  EXPECT_TRUE(has("GET /v1/pairs"));
}

}  // namespace
}  // namespace weighlock::test
