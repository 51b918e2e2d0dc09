#include "core/submitted.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

constexpr LinkId kOne{1};
constexpr LinkId kTwo{2};
constexpr Life kHere{.device = DeviceId(1), .epoch = WorkerEpoch(5)};
constexpr Life kThere{.device = DeviceId(2), .epoch = WorkerEpoch(5)};

RequestId request(std::uint64_t number) {
  return RequestId(number);
}

Submit submit(std::uint64_t number, std::vector<std::uint32_t> choices = {0}) {
  Submit made{.request = request(number)};
  for (const std::uint32_t choice : choices) {
    made.choices.push_back({.params = {.choice = choice}});
  }
  return made;
}

TokenEvent token(std::uint64_t number,
                 spec::FinishReason finish = spec::FinishReason::kNone,
                 std::uint32_t choice = 0,
                 std::int64_t position = 0) {
  return {.request = request(number), .choice = choice, .position = position, .finish = finish};
}

TokenEvent next(std::uint64_t number, std::int64_t position) {
  return token(number, spec::FinishReason::kNone, 0, position);
}

TEST(Submitted, TokensGoWhereTheirRequestCameFrom) {
  Submitted all;
  all.add(kOne, kHere, submit(1));
  all.add(kTwo, kHere, submit(2));
  all.add(kTwo, kThere, submit(3));
  const auto shares = all.share_out(kHere, {token(1), token(2), next(2, 1), token(3), token(4)});
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares.at(kOne).size(), 1U);
  EXPECT_EQ(shares.at(kTwo).size(), 2U) << "request 3 is elsewhere, and 4 is nobody's";
}

TEST(Submitted, ARequestEndsWithItsLastChoice) {
  Submitted all;
  all.add(kOne, kHere, submit(1, {0, 2, 3}));
  EXPECT_EQ(all.share_out(kHere, {token(1, spec::FinishReason::kStop, 2)}).size(), 1U);
  all.finish(kTwo, {.request = request(1), .choice = 0});
  all.finish(kOne, {.request = request(1), .choice = 3});
  EXPECT_EQ(all.size(), 1U) << "choice 0 was not the other link's to finish";
  const auto shares = all.share_out(kHere, {token(1), token(1, spec::FinishReason::kLength, 0, 1)});
  EXPECT_EQ(shares.at(kOne).size(), 2U);
  EXPECT_EQ(all.size(), 0U);
}

// It was submitted again before the worker had heard that the link of the first time has ended.
TEST(Submitted, TokensAfterOthersThatALinkHasLostAreNobodys) {
  Submitted all;
  all.add(kOne, kHere, submit(1));
  EXPECT_EQ(all.share_out(kHere, {token(1)}).size(), 1U);
  EXPECT_EQ(all.end(kOne).size(), 1U);
  EXPECT_TRUE(all.share_out(kHere, {next(1, 1)}).empty());
  Submit again = submit(1);
  again.choices[0].generated = {TokenId{7}};
  all.add(kTwo, kHere, again);
  const TokenEvent last = token(1, spec::FinishReason::kLength, 0, 2);
  EXPECT_TRUE(all.share_out(kHere, {last}).empty());
  EXPECT_EQ(all.size(), 1U) << "it runs on";
  EXPECT_EQ(all.share_out(kHere, {next(1, 1), last}).at(kTwo).size(), 2U);
  EXPECT_EQ(all.size(), 0U);
}

TEST(Submitted, WhatAWorkerGivesUpIsForgotten) {
  Submitted all;
  all.add(kOne, kHere, submit(1));
  EXPECT_FALSE(all.given_up(kThere, request(1)).has_value()) << "it is not there";
  EXPECT_EQ(all.given_up(kHere, request(1)), kOne);
  EXPECT_FALSE(all.given_up(kHere, request(1)).has_value());
}

TEST(Submitted, ALinkEndsWithItsRequests) {
  Submitted all;
  all.add(kOne, kHere, submit(1));
  all.add(kTwo, kHere, submit(2));
  all.add(kOne, kThere, submit(3));
  const auto ended = all.end(kOne);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0], std::pair(request(1), kHere));
  EXPECT_EQ(ended[1], std::pair(request(3), kThere));
  EXPECT_FALSE(all.find(kOne, request(1)).has_value());
  EXPECT_EQ(all.find(kTwo, request(2)), kHere);
}

TEST(Submitted, ALifeEndsWithItsRequests) {
  Submitted all;
  all.add(kOne, kHere, submit(1));
  all.add(kOne, kThere, submit(2));
  all.end(kHere);
  EXPECT_FALSE(all.find(kOne, request(1)).has_value());
  EXPECT_EQ(all.find(kOne, request(2)), kThere);
  all.remove(kTwo, request(2));
  EXPECT_EQ(all.size(), 1U) << "it is another link's";
  all.remove(kOne, request(2));
  EXPECT_EQ(all.size(), 0U);
}

}  // namespace
}  // namespace heddle::core
