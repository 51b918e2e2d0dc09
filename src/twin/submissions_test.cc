#include "twin/submissions.h"

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

constexpr RequestId kRequest{1};
constexpr Life kPlace{.device = DeviceId(3), .epoch = WorkerEpoch(4)};

core::Submit submit(std::vector<TokenId> generated = {}) {
  core::Submit submit{.request = kRequest, .choices = {{}}};
  submit.choices[0].generated = std::move(generated);
  return submit;
}

core::TokenEvent token(std::int64_t position, bool last = false) {
  return {.request = kRequest,
          .position = position,
          .finish = last ? spec::FinishReason::kLength : spec::FinishReason::kNone};
}

TEST(Submissions, TokensGoWhereTheirRequestCameFromUntilTheLast) {
  Submissions all;
  all.add(5, kPlace, submit());
  EXPECT_TRUE(all.share_out({.device = DeviceId(9)}, {token(0)}).empty());
  EXPECT_EQ(all.share_out(kPlace, {token(0), token(1, true)}).at(5).size(), 2U);
  EXPECT_EQ(all.size(), 0U);
}

// It was submitted again before the worker had heard that the link of the first time has ended.
TEST(Submissions, TokensAfterOthersThatALinkHasLostAreNobodys) {
  Submissions all;
  all.add(5, kPlace, submit());
  (void)all.share_out(kPlace, {token(0)});
  EXPECT_EQ(all.end(Submissions::Link{5}).size(), 1U);
  (void)all.share_out(kPlace, {token(1)});
  all.add(6, kPlace, submit({7}));
  EXPECT_TRUE(all.share_out(kPlace, {token(2, true)}).empty());
  EXPECT_EQ(all.size(), 1U) << "it runs on";
  EXPECT_EQ(all.share_out(kPlace, {token(1), token(2, true)}).at(6).size(), 2U);
  EXPECT_EQ(all.size(), 0U);
}

TEST(Submissions, WhatEndsTakesItsRequestsAlong) {
  Submissions all;
  all.add(5, kPlace, submit());
  EXPECT_EQ(all.find(5, kRequest), kPlace);
  EXPECT_FALSE(all.find(6, kRequest).has_value());
  all.remove(6, kRequest);
  EXPECT_EQ(all.given_up(kPlace, kRequest), 5U);
  all.add(5, kPlace, submit());
  all.end(kPlace);
  EXPECT_EQ(all.size(), 0U);
  all.add(5, kPlace, submit());
  all.finish(5, {.request = kRequest, .choice = 0});
  EXPECT_EQ(all.size(), 0U);
}

}  // namespace
}  // namespace heddle::twin
