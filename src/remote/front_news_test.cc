#include "remote/front_news.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remote/test_host.h"

namespace heddle::remote {
namespace {

using testing::HasSubstr;

constexpr FrontId kAnotherFront{9};

/// What is said about a request, in each way that there is.
std::vector<GatewayToManager> news_of(RequestId id) {
  return {core::RequestArrived{.request = id},
          core::RequestFinished{.request = id},
          core::RequestCancelled{.request = id},
          core::RequestUnanswered{.request = id},
          core::PlaceLost{.requests = {id}},
          core::PlaceLost{.advanced = {id}},
          core::WorkerSaid{.report = core::RequestReturned{.request = id}},
          core::WorkerSaid{.report = core::RequestFailed{.request = id, .error = {}}},
          core::FrontState{.front = kFront, .requests = {{.request = {.request = id}}}}};
}

TEST(FrontNews, IsOfOnesOwnRequestsAlone) {
  for (const GatewayToManager& own : news_of(request(5))) {
    EXPECT_TRUE(check_news(own, kFront)) << own.index();
  }
  for (const GatewayToManager& other : news_of(request(5, kAnotherFront))) {
    const Result<void> good = check_news(other, kFront);
    ASSERT_FALSE(good) << other.index();
    EXPECT_EQ(good.error().code, Code::kCorrupt);
    EXPECT_THAT(good.error().message, HasSubstr("is of front 9, and this gateway has front 2"));
  }
  const Result<void> other = check_news(core::FrontState{.front = kAnotherFront}, kFront);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "it tells of front 9, and has front 2");
}

TEST(FrontNews, HasNumbersThatCanBeReckonedWith) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const RequestId id = request(1);
  EXPECT_TRUE(check_news(core::RequestArrived{.request = id, .max_tokens = 1 << 20}, kFront));
  EXPECT_TRUE(
      check_news(core::RequestArrived{.request = id, .patience = -std::chrono::hours(1)}, kFront));
  for (const core::RequestArrived& odd :
       {core::RequestArrived{.request = id, .prompt_tokens = kMost},
        core::RequestArrived{.request = id, .max_tokens = kMost},
        core::RequestArrived{.request = id, .patience = Duration(kMost)},
        core::RequestArrived{.request = id, .patience = Duration(-kMost)}}) {
    EXPECT_FALSE(check_news(odd, kFront));
    EXPECT_FALSE(
        check_news(core::FrontState{.front = kFront, .requests = {{.request = odd}}}, kFront));
  }
  const core::Unfinished old{.request = {.request = id}, .age = Duration(kMost)};
  EXPECT_FALSE(check_news(core::FrontState{.front = kFront, .requests = {old}}, kFront));
}

TEST(FrontNews, ListsRequestsAscending) {
  EXPECT_TRUE(check_news(core::PlaceLost{.requests = {request(1), request(2)}}, kFront));
  EXPECT_FALSE(check_news(core::PlaceLost{.requests = {request(2), request(1)}}, kFront));
  EXPECT_FALSE(check_news(core::PlaceLost{.advanced = {request(2), request(1)}}, kFront));
}

TEST(FrontNews, MayAskForModels) {
  EXPECT_TRUE(check_news(core::AdminLoad{.model = kModel}, kFront));
  EXPECT_TRUE(check_news(core::AdminUnload{.model = kModel}, kFront));
}

}  // namespace
}  // namespace heddle::remote
