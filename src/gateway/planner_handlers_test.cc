#include "gateway/planner_handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

class PlannerHandlers : public GatewayTest {
 protected:
  static core::NotedDecision decision(const std::string& model, const std::string& for_model) {
    return {.at = steady_now() - std::chrono::seconds(3),
            .kind = core::DecisionKind::kEvict,
            .model = model,
            .device = "cpu0",
            .for_model = for_model,
            .why = "displaced"};
  }
};

TEST_F(PlannerHandlers, DecisionsAreListedWithTheirReasons) {
  serving.noted = {decision("tiny", "org/name:8b"), decision("other", "")};
  start();
  const nlohmann::json all = ask("GET", "/api/decisions")["decisions"];
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["decision"], "evict");
  EXPECT_EQ(all[0]["model"], "tiny");
  EXPECT_EQ(all[0]["device"], "cpu0");
  EXPECT_EQ(all[0]["for"], "org/name:8b");
  EXPECT_EQ(all[0]["why"], "displaced");
  EXPECT_GE(all[0]["age_ms"], 3000);
  EXPECT_TRUE(all[1]["for"].is_null());
  EXPECT_TRUE(all[0]["first_token_ms"].is_null());
}

TEST_F(PlannerHandlers, ALoadSaysWhatWasPredictedOfItsFirstTokenAndWhatThatTook) {
  core::NotedDecision load = decision("tiny", "");
  load.first_token = std::chrono::milliseconds(310);
  load.first_token_was = std::chrono::milliseconds(350);
  serving.noted = {load};
  start();
  const nlohmann::json all = ask("GET", "/api/decisions")["decisions"];
  EXPECT_EQ(all[0]["first_token_ms"], 310);
  EXPECT_EQ(all[0]["first_token_was_ms"], 350);
}

TEST_F(PlannerHandlers, DecisionsOfOneModelAreThoseThatConcernIt) {
  serving.noted = {decision("tiny", "org/name:8b"), decision("other", "")};
  start();
  EXPECT_EQ(ask("GET", "/api/decisions?model=tiny")["decisions"].size(), 1U);
  EXPECT_EQ(ask("GET", "/api/decisions?model=org%2Fname:8b")["decisions"].size(), 1U);
  EXPECT_EQ(ask("GET", "/api/decisions?model=nobody")["decisions"].size(), 0U);
}

TEST_F(PlannerHandlers, ForecastsAreListedByModel) {
  start();
  const nlohmann::json models = ask("GET", "/api/forecasts")["models"];
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0]["model"], "tiny");
  EXPECT_TRUE(models[0]["error"].is_null()) << "there is nothing to judge by";
  EXPECT_EQ(models[0]["starts"]["hit"], 0);
  EXPECT_EQ(models[0]["loads"]["forecast"], 0);
}

}  // namespace
}  // namespace heddle::gateway
