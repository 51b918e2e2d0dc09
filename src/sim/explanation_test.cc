#include "sim/explanation.h"

#include <gtest/gtest.h>

#include "sim/test_run.h"

namespace heddle::sim {
namespace {

const std::vector<std::string> kNames{"alpha", "beta"};

TEST(Story, PartsAddUpToTheWait) {
  const auto results = run_two_models({.explain = RequestId(1)});
  ASSERT_NE(results->explanation(), nullptr);
  Duration sum{};
  for (const Explanation::Part& part : results->explanation()->parts(kNames)) {
    EXPECT_GT(part.took, Duration{});
    sum += part.took;
  }
  // The second of two, and the slower one: its wait is the greatest.
  EXPECT_NEAR(to_seconds(sum), results->ttft().at(1), 1e-5);
}

TEST(Story, SaysWhichLinkBroughtTheWeights) {
  const auto results = run_two_models({.explain = RequestId(1)});
  const std::string text = results->explanation()->tell(kNames);
  EXPECT_NE(text.find("Request 1 of beta: 200 tokens in, 20 out"), std::string::npos) << text;
  EXPECT_NE(text.find("no instance of its model served"), std::string::npos) << text;
  EXPECT_NE(text.find("16.06 GB of weights came from the store over the NIC of h-0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("its objective being 2 s"), std::string::npos) << text;
  EXPECT_NE(text.find("start beta on GPU 0 (nothing of it is there)"), std::string::npos) << text;
  EXPECT_EQ(text.find("alpha on"), std::string::npos) << "alpha was long gone\n" << text;
}

TEST(Story, OfNobody) {
  const auto results = run_two_models({.explain = RequestId(7)});
  EXPECT_EQ(results->explanation()->tell(kNames), "The workload has no request 7.\n");
}

}  // namespace
}  // namespace heddle::sim
