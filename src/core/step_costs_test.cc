#include "core/step_costs.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

TEST(StepCosts, ConvergeToWhatStepsTake) {
  StepCosts costs;
  costs.add(ModelId(1), 1'000'000);
  for (int i = 0; i < 200; ++i) {
    costs.learn({{.model = ModelId(1), .tokens = 1}}, 5ms);
    costs.learn({{.model = ModelId(1), .tokens = 1000}}, 105ms);
  }
  const policy::StepCost cost = costs.costs().at(0);
  EXPECT_NEAR(static_cast<double>((cost.fixed + cost.per_token).count()), 5e6, 5e5);
  EXPECT_NEAR(static_cast<double>(cost.per_token.count()), 1e5, 1e4);
}

TEST(StepCosts, APromptTakesItsPartOfFullStepsAndItsAttention) {
  StepCosts costs;
  costs.add(ModelId(1), 1'000'000);
  const policy::StepCost cost = costs.costs().at(0);
  EXPECT_EQ(costs.prefill(ModelId(1), 0, 256, 512),
            cost.fixed / 2 + cost.per_token * 256 + cost.per_context_token * (256 * 257 / 2));
  EXPECT_EQ(costs.prefill(ModelId(1), 100, 64, 64) - costs.prefill(ModelId(1), 0, 64, 64),
            cost.per_context_token * 6400);
}

TEST(StepCosts, GuessByTheSizeOfTheWeights) {
  StepCosts costs;
  costs.add(ModelId(1), 1'000'000);
  costs.add(ModelId(2), 4'000'000);
  EXPECT_LT(costs.costs()[0].fixed, costs.costs()[1].fixed);
}

TEST(StepCosts, WhoComesBackCostsWhatItDidBefore) {
  StepCosts costs;
  costs.add(ModelId(1), 1'000'000);
  costs.add(ModelId(2), 1'000'000);
  costs.learn({{.model = ModelId(1), .tokens = 1}}, 5ms);
  const policy::StepCost learned = costs.costs().at(0);
  costs.remove(ModelId(1));
  ASSERT_EQ(costs.costs().size(), 1U);
  EXPECT_EQ(costs.costs().at(0).model, ModelId(2));
  costs.remove(ModelId(3));  // That never came.
  costs.add(ModelId(1), 1'000'000);
  EXPECT_EQ(costs.costs().at(0).fixed, learned.fixed);
  EXPECT_GT(learned.fixed, costs.costs().at(1).fixed);
}

}  // namespace
}  // namespace heddle::core
