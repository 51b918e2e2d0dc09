#include "gateway/renaming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/standing.h"
#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using config::SelectorStrategy;
using testing::HasSubstr;

class Renaming : public ForwardingTest {
 protected:
  /// The engine answers with the body that it got.
  void start_mirror() {
    start_with([](const FakeEngine::Peer& peer, const std::string& request) {
      return peer.answer(request.substr(request.find("\r\n\r\n") + 4));
    });
  }
  void select(SelectorStrategy strategy, std::vector<std::string> targets) {
    config.selectors = {{.id = "any", .strategy = strategy, .targets = std::move(targets)}};
  }
};

TEST_F(Renaming, ModelsOfOursAnswerUnderTheirOwnNames) {
  select(SelectorStrategy::kPin, {"tiny"});
  serving.reply = "hello";
  start();
  for (const char* name : {"any", "any:latest"}) {
    const auto answer = ask("POST", "/v1/chat/completions", chat(false, name));
    EXPECT_EQ(answer["choices"][0]["message"]["content"], "hello");
    EXPECT_EQ(answer["model"], "tiny");
  }
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat(false, "none")).status, 404);
  EXPECT_EQ(call("POST", "/v1/chat/completions", "nonsense").status, 400);
}

TEST_F(Renaming, EnginesGetTheNameOfTheTarget) {
  select(SelectorStrategy::kPin, {"far/away"});
  start_mirror();
  EXPECT_THAT(call("POST", "/v1/chat/completions", chat(false, "any")).body,
              HasSubstr(R"("model":"far/away")"));
  EXPECT_THAT(call("POST", "/v1/rerank", R"({"model":"any","query":"x"})").body,
              HasSubstr(R"("model":"far/away")"));
  const std::string long_body = R"({"model":"any","prompt":")" + std::string(200'000, 'x') + "\"}";
  EXPECT_THAT(call("POST", "/v1/completions", long_body).body, HasSubstr(R"("model":"far/away")"));
}

TEST_F(Renaming, WarmAsksWhatIsInMemory) {
  select(SelectorStrategy::kWarm, {"far/away", "org/name:8b", "tiny"});
  serving.residency[ModelId(1)] = core::Residency::kServing;
  serving.reply = "hello";
  start_mirror();
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat(false, "any"))["model"], "tiny");
  on_loop([this] {
    serving.engine_statuses = {{.model = ModelId(3), .state = core::EngineState::kRunning}};
  });
  EXPECT_THAT(call("POST", "/v1/chat/completions", chat(false, "any")).body,
              HasSubstr(R"("model":"far/away")"));
}

TEST_F(Renaming, SelectorsAreListedUnlessTheySayNot) {
  select(SelectorStrategy::kWarm, {"org/name:8b", "tiny"});
  config.selectors.push_back({.id = "hidden", .targets = {"tiny"}, .unlisted = true});
  serving.residency[ModelId(1)] = core::Residency::kServing;
  start();
  const auto list = ask("GET", "/v1/models")["data"];
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[3]["id"], "any");
  EXPECT_EQ(list[3]["status"]["value"], "loaded");
  EXPECT_EQ(list[3]["targets"], nlohmann::json({"org/name:8b", "tiny"}));
  EXPECT_EQ(ask("GET", "/v1/models/hidden")["id"], "hidden");
}

}  // namespace
}  // namespace heddle::gateway
