#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ProfileHandlers : public ForwardingTest {
 protected:
  ProfileHandlers() {
    config.profiles = {{.id = "coding",
                        .description = "for code",
                        .pins = {{"llm", "tiny"}, {"tiny", "far/away"}, {"gone", ""}}}};
    config.api_keys = {{.key = "root", .role = config::Role::kAdmin}, {.key = "one"}};
    serving.reply = "hello";
  }
  TestResponse as_root(const std::string& method,
                       const std::string& path,
                       const std::string& body) {
    return call(method, path, body, "Authorization: Bearer root\r\n");
  }
  json chat_with(const std::string& model) {
    return json::parse(as_root("POST", "/v1/chat/completions", chat(false, model)).body);
  }
};

TEST_F(ProfileHandlers, AreListedAndChosenByAdministrators) {
  start();
  const json none = json::parse(as_root("GET", "/api/profiles", "").body);
  EXPECT_TRUE(none["active"].is_null());
  EXPECT_EQ(none["profiles"][0]["id"], "coding");
  EXPECT_EQ(none["profiles"][0]["pins"]["llm"], "tiny");
  EXPECT_EQ(none["profiles"][0]["pins"]["gone"], "");
  const std::string coding = R"({"name":"coding"})";
  EXPECT_EQ(call("PUT", "/api/profiles/active", coding, "Authorization: Bearer one\r\n").status,
            403);
  EXPECT_EQ(as_root("PUT", "/api/profiles/active", R"({"name":"nobody"})").status, 404);
  EXPECT_EQ(as_root("PUT", "/api/profiles/active", "{}").status, 400);
  EXPECT_EQ(json::parse(as_root("PUT", "/api/profiles/active", coding).body)["active"], "coding");
  EXPECT_EQ(json::parse(as_root("GET", "/api/profiles", "").body)["active"], "coding");
  EXPECT_TRUE(json::parse(as_root("PUT", "/api/profiles/active", R"({"name":null})").body)["active"]
                  .is_null());
}

TEST_F(ProfileHandlers, GiveNamesToOtherModelsWhileActive) {
  start_with([](const FakeEngine::Peer& peer, const std::string& request) {
    return peer.answer(request.substr(request.find("\r\n\r\n") + 4));
  });
  EXPECT_EQ(chat_with("tiny")["model"], "tiny");
  EXPECT_EQ(chat_with("llm")["error"]["code"], "model_not_found");
  as_root("PUT", "/api/profiles/active", R"({"name":"coding"})");
  EXPECT_EQ(chat_with("llm")["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(chat_with("tiny")["model"], "far/away") << "a pin goes before a model of its name";
  const json gone = chat_with("gone");
  EXPECT_EQ(gone["error"]["code"], "model_not_found");
  EXPECT_THAT(gone["error"]["message"].get<std::string>(), HasSubstr("active profile"));
  const json list = json::parse(as_root("GET", "/v1/models", "").body)["data"];
  ASSERT_EQ(list.size(), 4U) << "llm beside the models; others have its pins' names already";
  EXPECT_EQ(list[3]["id"], "llm");
  on_loop([this] { gateway->reload(config); });
  EXPECT_EQ(chat_with("llm")["error"]["code"], "model_not_found");
}

TEST_F(ProfileHandlers, HoldUnderUpstreamToo) {
  start_with([](const FakeEngine::Peer& peer, const std::string& request) {
    return peer.answer(request.substr(0, request.find("\r\n")));
  });
  as_root("PUT", "/api/profiles/active", R"({"name":"coding"})");
  EXPECT_THAT(as_root("GET", "/upstream/tiny/props", "").body, HasSubstr("GET /props"));
}

}  // namespace
}  // namespace heddle::gateway
