#include "worker/lockstep.h"

#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "base/check.h"
#include "collective/shared_collective.h"
#include "core/codec.h"
#include "rpc/frame.h"
#include "rpc/link.h"

#include <sys/socket.h>

namespace heddle::worker {
namespace {

constexpr ModelId kModel{3};

/// Both ranks of a group of two.
class LockstepTest : public testing::Test {
 protected:
  LockstepTest() {
    auto area = collective::SharedArea::create(2).value();
    auto sockets = rpc::socket_pair().value();
    follower_end_ = std::move(sockets.second);
    std::vector<Descriptor> followers;
    followers.push_back(std::move(sockets.first));
    leader_.emplace(
        kModel, std::make_unique<collective::SharedCollective>(area, 0), std::move(followers));
    follower_.emplace(
        kModel, std::make_unique<collective::SharedCollective>(area, 1), std::vector<Descriptor>());
  }

  /// What both say of steps that did this.
  std::pair<Result<void>, Result<void>> compare(const core::StepDone& first,
                                                const core::StepDone& second) {
    Result<void> other;
    std::thread thread([&] { other = follower_->compare(second); });
    Result<void> own = leader_->compare(first);
    thread.join();
    return {own, other};
  }

  Descriptor follower_end_{};
  std::optional<Lockstep> leader_{};
  std::optional<Lockstep> follower_{};
};

TEST_F(LockstepTest, WhatIsForTheEngineIsPassedOnInFrames) {
  EXPECT_TRUE(leader_->leads());
  EXPECT_FALSE(follower_->leads());
  const core::AddSequence add{.sequence = core::SequenceId(7), .model = kModel, .tokens = {1, 2}};
  ASSERT_TRUE(leader_->pass_on(core::SetImageReady{.model = kModel, .bytes = 5}));
  ASSERT_TRUE(leader_->pass_on(add));
  std::array<char, 4096> bytes{};
  const ssize_t received = ::recv(follower_end_.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(received, 0);
  rpc::FrameDecoder decoder(bytes.size());
  decoder.add(std::as_bytes(std::span(bytes.data(), static_cast<std::size_t>(received))));
  const auto frame = decoder.next();
  ASSERT_TRUE(frame.has_value() && frame->has_value());
  const auto command = core::decode_worker_command((*frame)->payload);
  ASSERT_TRUE(command.has_value()) << command.error().message;
  EXPECT_EQ(std::get<core::AddSequence>(*command).tokens, add.tokens);
  EXPECT_FALSE(decoder.next()->has_value()) << "the other command is not the engine's";
}

TEST_F(LockstepTest, WhoIsGoneIsAnError) {
  follower_end_ = Descriptor();
  const Result<void> told =
      leader_->pass_on(core::AddSequence{.sequence = core::SequenceId(7), .model = kModel});
  ASSERT_FALSE(told.has_value());
  EXPECT_EQ(told.error().code, Code::kUnavailable);
}

/// A sequence of the leader's group, and its name with the follower.
core::SequenceId add_to(Lockstep& leader, const Lockstep& follower, std::uint64_t id) {
  const core::AddSequence add{.sequence = core::SequenceId(id), .model = kModel};
  HEDDLE_CHECK(leader.pass_on(add).has_value());
  return std::get<core::AddSequence>(follower.named_here(add)).sequence;
}

TEST_F(LockstepTest, StepsThatDidTheSameAgreeWhateverElseTheyDid) {
  const core::SequenceId there = add_to(*leader_, *follower_, 1);
  core::StepDone done{.slices = {{.sequence = core::SequenceId(1), .computed = 4, .token = 9}},
                      .counted = {.kv = {{.model = kModel, .pages = 2}}, .cached_pages = 1},
                      .took = Duration(5)};
  core::StepDone later = done;
  later.took = Duration(6);
  later.slices[0].sequence = there;
  done.slices.push_back({.sequence = core::SequenceId(2), .computed = 3});  // Of another model.
  later.counted.kv.push_back({.model = ModelId(4), .pages = 7});
  later.counted.cached_pages = 2;
  const auto [own, other] = compare(done, later);
  EXPECT_TRUE(own.has_value());
  EXPECT_TRUE(other.has_value());
}

TEST_F(LockstepTest, WhatConcernsOtherModelsIsNotPassedOn) {
  add_to(*leader_, *follower_, 1);
  const core::SequenceId own(1);
  const core::SequenceId other(2);
  std::array<char, 4096> bytes{};
  ASSERT_GT(::recv(follower_end_.get(), bytes.data(), bytes.size(), 0), 0);
  ASSERT_TRUE(leader_->pass_on(core::AddSequence{.sequence = other, .model = ModelId(4)}));
  ASSERT_TRUE(leader_->pass_on(core::RemoveSequence{.sequence = other}));
  ASSERT_TRUE(leader_->pass_on(core::SizeShare{.model = ModelId(4), .pages = 3}));
  const core::RunStep run{
      .plan = {.batches = {{.model = kModel, .slices = {{.sequence = own, .tokens = 1}}},
                           {.model = ModelId(4), .slices = {{.sequence = other, .tokens = 1}}}}}};
  ASSERT_TRUE(leader_->pass_on(run));
  const ssize_t received = ::recv(follower_end_.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(received, 0);
  rpc::FrameDecoder decoder(bytes.size());
  decoder.add(std::as_bytes(std::span(bytes.data(), static_cast<std::size_t>(received))));
  const auto frame = decoder.next();
  ASSERT_TRUE(frame.has_value() && frame->has_value());
  const auto command = core::decode_worker_command((*frame)->payload);
  ASSERT_TRUE(command.has_value());
  const core::RunStep named = std::get<core::RunStep>(follower_->named_here(*command));
  ASSERT_EQ(named.plan.batches.size(), 1U);
  EXPECT_TRUE(is_followed(named.plan.batches[0].slices[0].sequence));
  EXPECT_FALSE(decoder.next()->has_value());
}

TEST_F(LockstepTest, WhicheverPartOfAStepDiffersBothHearOfIt) {
  const core::StepDone done{.slices = {{.sequence = core::SequenceId(1), .computed = 4}},
                            .counted = {.kv = {{.model = kModel, .pages = 2}}}};
  const core::SequenceId there = add_to(*leader_, *follower_, 1);
  std::vector<core::StepDone> others(3, done);
  for (core::StepDone& other : others) {
    other.slices[0].sequence = there;
  }
  others[0].slices[0].token = 9;
  others[1].starved = {there};
  others[2].counted.kv[0].pages = 3;
  for (const core::StepDone& different : others) {
    auto area = collective::SharedArea::create(2).value();  // One that failed is of no more use.
    leader_.emplace(
        kModel, std::make_unique<collective::SharedCollective>(area, 0), std::vector<Descriptor>());
    follower_.emplace(
        kModel, std::make_unique<collective::SharedCollective>(area, 1), std::vector<Descriptor>());
    add_to(*leader_, *follower_, 1);
    const auto [own, other] = compare(done, different);
    ASSERT_FALSE(own.has_value());
    ASSERT_FALSE(other.has_value());
    EXPECT_EQ(own.error().code, Code::kCorrupt);
    EXPECT_EQ(other.error().code, Code::kCorrupt);
  }
}

TEST_F(LockstepTest, AllRanksLeaveTogether) {
  ASSERT_TRUE(leader_->pass_on(core::LeaveRanks{.model = ModelId(9)}));
  ASSERT_TRUE(leader_->pass_on(core::LeaveRanks{.model = kModel}));
  std::array<char, 4096> bytes{};
  const ssize_t received = ::recv(follower_end_.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(received, 0);
  rpc::FrameDecoder decoder(bytes.size());
  decoder.add(std::as_bytes(std::span(bytes.data(), static_cast<std::size_t>(received))));
  const auto frame = decoder.next();
  ASSERT_TRUE(frame.has_value() && frame->has_value());
  const auto command = core::decode_worker_command((*frame)->payload);
  ASSERT_TRUE(command.has_value());
  EXPECT_TRUE(std::holds_alternative<core::LeaveRanks>(*command));
  Result<void> other;
  std::thread thread([&] { other = follower_->part(); });
  const Result<void> own = leader_->part();
  thread.join();
  EXPECT_TRUE(own);
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace heddle::worker
