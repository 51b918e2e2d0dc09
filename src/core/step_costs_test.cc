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

TEST(StepCosts, GuessByTheSizeOfTheWeightsAndForget) {
  StepCosts costs;
  costs.add(ModelId(1), 1'000'000);
  costs.add(ModelId(2), 4'000'000);
  EXPECT_LT(costs.costs()[0].fixed, costs.costs()[1].fixed);
  costs.remove(ModelId(1));
  EXPECT_EQ(costs.costs().at(0).model, ModelId(2));
}

}  // namespace
}  // namespace heddle::core
