#include "gateway/openapi.h"

#include <set>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class OpenApiTest : public GatewayTest {
 protected:
  [[nodiscard]] json document() const { return ask("GET", "/openapi.json"); }

  /// A body of a model that is there.
  static std::string body_of(const json& operation, const std::string& name) {
    if (!operation.contains("requestBody")) {
      return "{}";
    }
    std::string text = operation["requestBody"]["content"]["application/json"]["example"].dump();
    const std::size_t at = text.find("MODEL");
    return at == std::string::npos ? text : text.replace(at, 5, name);
  }
};

TEST_F(OpenApiTest, EveryRouteIsToldOfAndNoOther) {
  start();
  std::set<std::string> there;
  const json paths = document()["paths"];
  for (const auto& [path, methods] : paths.items()) {
    for (const auto& [method, operation] : methods.items()) {
      if (method == "parameters") {
        continue;
      }
      there.insert(method + " " + path);
      EXPECT_FALSE(operation.value("summary", "").empty()) << method << " " << path;
    }
  }
  for (const Operation& operation : operations()) {
    std::string name(operation.route.method);
    for (char& c : name) {
      c = static_cast<char>(c - 'A' + 'a');
    }
    name += " " + std::string(operation.route.path);
    EXPECT_EQ(there.count(name), 1U) << name << " is told of and not there";
  }
  EXPECT_EQ(there.size(), operations().size());
}

TEST_F(OpenApiTest, WhatItShowsIsAnswered) {
  serving.reply = "yes";
  options.adapters.load = [](const api::LoadAdapterRequest&, const auto& done) { done({}); };
  options.adapters.unload = [](const std::string&, const auto& done) { done({}); };
  const TestModel scorer;
  scorer.make_encoder(/*scores=*/true);
  config.models[1].path = scorer.directory().string();
  start();
  const json paths = document()["paths"];
  int answered = 0;
  for (const auto& [path, methods] : paths.items()) {
    const std::string tag = methods.contains("post") ? methods["post"]["tags"][0] : "";
    const bool asks = methods.contains("post") && methods["post"].contains("requestBody");
    if (asks && tag != "cluster" && tag != "batches") {  // Those have nothing to show.
      const TestResponse response = call(
          "POST", path, body_of(methods["post"], tag == "scores" ? config.models[1].id : "tiny"));
      EXPECT_EQ(response.status, 200) << path << ": " << response.body;
      ++answered;
    }
  }
  EXPECT_GT(answered, 10);
}

TEST_F(OpenApiTest, ReferencesLeadSomewhere) {
  start();
  const json document = this->document();
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], "1.2.3");
  const json& schemas = document["components"]["schemas"];
  for (const RequestSchema& one : request_schemas()) {
    EXPECT_TRUE(schemas.contains(one.name)) << one.name;
  }
  for (const Operation& operation : operations()) {
    EXPECT_TRUE(operation.request.empty() || schemas.contains(operation.request))
        << operation.request;
  }
  const json& chat = document["paths"]["/v1/chat/completions"]["post"];
  EXPECT_EQ(chat["x-heddle-role"], "inference");
  EXPECT_EQ(chat["responses"]["default"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/OpenAiError");
  EXPECT_TRUE(document["paths"]["/health"]["get"]["security"].empty());
}

}  // namespace
}  // namespace heddle::gateway
