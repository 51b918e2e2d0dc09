#include "policy/admission.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

// 4 tokens to a block, 2 blocks to a page: a page holds 8 tokens.
const std::vector<KvGroup> kKv = {{.tokens_per_block = 4, .blocks_per_page = 2}};
const AdmissionModel kModel{.model = ModelId(1), .kv = kKv};

AdmissionView sequence(std::uint64_t id, std::int64_t tokens, bool admitted = false) {
  return {.id = SequenceId(id),
          .model = ModelId(1),
          .arrived = Instant{1s * id},
          .admitted = admitted,
          .tokens = tokens,
          .cached = admitted ? tokens : 0,
          .remaining = 100};
}

std::vector<SequenceId> admit(std::vector<AdmissionView> sequences, std::int64_t pages) {
  return choose_admissions(sequences, {&kModel, 1}, pages);
}

TEST(KvPages, PacksBlocksOfSequencesIntoPages) {
  const std::int64_t lengths[] = {1, 4, 5};  // 1 + 1 + 2 blocks.
  EXPECT_EQ(kv_pages(kKv, lengths), 2);
  EXPECT_EQ(kv_pages(kKv, {}), 0);
}

TEST(KvPages, AWindowKeepsItsTokensAndOneBlock) {
  const std::vector<KvGroup> windowed = {
      {.tokens_per_block = 4, .blocks_per_page = 1, .window = 16}};
  const std::int64_t length = 1000;
  EXPECT_EQ(kv_pages(windowed, {&length, 1}), 5);
}

TEST(TokensThatFit, IsTheLargestLengthWhosePagesFit) {
  EXPECT_EQ(tokens_that_fit(kKv, 3, 1000), 24);
  EXPECT_EQ(tokens_that_fit(kKv, 3, 10), 10);
  EXPECT_EQ(tokens_that_fit(kKv, 0, 10), 0);
}

TEST(ChooseAdmissions, ReservesPromptAndTwentyTokens) {
  // 28 + 20 tokens are 12 blocks, 6 pages.
  EXPECT_EQ(admit({sequence(1, 28), sequence(2, 28)}, 12).size(), 2U);
  EXPECT_EQ(admit({sequence(1, 28), sequence(2, 28)}, 11), std::vector{SequenceId(1)});
}

// Three that share a prompt of 80 tokens, 10 pages, and have 8 tokens each of their own: 13 pages
// where nothing shared would be 33. A fourth is counted in full, as nobody knows what it will find.
TEST(ChooseAdmissions, WhatIsSharedCountsOnce) {
  std::vector<AdmissionView> sequences;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    sequences.push_back(sequence(id, 88, true));
    sequences.back().remaining = 8;
  }
  sequences.push_back(sequence(4, 88));
  sequences.back().remaining = 8;
  AdmissionModel model = kModel;
  model.pages_used = 13;
  EXPECT_EQ(choose_admissions(sequences, {&model, 1}, 28).size(), 1U) << "13 + 3 + 12";
  EXPECT_EQ(choose_admissions(sequences, {&model, 1}, 27).size(), 0U);
  model.pages_used.reset();
  EXPECT_EQ(choose_admissions(sequences, {&model, 1}, 47).size(), 0U);
  EXPECT_EQ(choose_admissions(sequences, {&model, 1}, 48).size(), 1U);
}

// Scattered blocks are not held against anybody: they are packed as they come and go.
TEST(ChooseAdmissions, NeverReservesMoreThanIfNothingWereShared) {
  AdmissionModel model = kModel;
  model.pages_used = 100;
  const std::vector<AdmissionView> both{sequence(1, 28, true), sequence(2, 28)};
  EXPECT_EQ(choose_admissions(both, {&model, 1}, 12).size(), 1U);
}

TEST(ChooseAdmissions, ReservesNoMoreThanMayBeGenerated) {
  AdmissionView last = sequence(2, 28);
  last.remaining = 1;  // 29 tokens: 8 blocks.
  EXPECT_EQ(admit({sequence(1, 28), last}, 10).size(), 2U);
}

TEST(ChooseAdmissions, NobodyOvertakes) {
  EXPECT_EQ(admit({sequence(3, 1), sequence(2, 200), sequence(1, 28)}, 12),
            std::vector{SequenceId(1)});
}

TEST(ChooseAdmissions, APriorityGoesBeforeAge) {
  AdmissionView urgent = sequence(2, 28);
  urgent.priority = -1;
  EXPECT_EQ(admit({sequence(1, 28), urgent}, 7), std::vector{SequenceId(2)});
}

// What a model may not have more of holds up that model; one sequence alone may have it.
TEST(AdmissionRoom, KeepsAModelWithinItsPart) {
  AdmissionModel model = kModel;
  model.most_pages = 13;
  const std::vector<AdmissionView> running{sequence(1, 28, true)};
  AdmissionRoom room(running, {&model, 1}, 100);
  EXPECT_EQ(room.left(), 94);
  EXPECT_EQ(room.admit(sequence(2, 28)), AdmissionRoom::Answer::kFits);
  EXPECT_EQ(room.left(), 88);
  EXPECT_EQ(room.admit(sequence(3, 28)), AdmissionRoom::Answer::kModelFull);
  EXPECT_EQ(room.left(), 88) << "it is not counted";
  AdmissionRoom empty({}, {&model, 1}, 100);
  EXPECT_EQ(empty.admit(sequence(3, 280)), AdmissionRoom::Answer::kFits);
  EXPECT_EQ(empty.admit(sequence(4, 2800)), AdmissionRoom::Answer::kModelFull);
  empty.force(sequence(4, 2800));
  EXPECT_EQ(empty.left(), 0);
  AdmissionRoom small({}, {&kModel, 1}, 5);
  EXPECT_EQ(small.admit(sequence(1, 28)), AdmissionRoom::Answer::kNoPages);
}

TEST(ChooseAdmissions, TheOldestMayAlwaysRunAlone) {
  EXPECT_EQ(admit({sequence(1, 500), sequence(2, 1)}, 3), std::vector{SequenceId(1)});
  EXPECT_TRUE(admit({sequence(1, 500, true), sequence(2, 1)}, 3).empty());
}

TEST(ChoosePreemption, TakesTheNewestThatHoldsPages) {
  AdmissionView empty = sequence(4, 9, true);
  empty.cached = 0;
  const AdmissionView sequences[] = {
      empty, sequence(1, 9, true), sequence(3, 9, true), sequence(5, 9)};
  EXPECT_EQ(choose_preemption(sequences), SequenceId(3));
}

TEST(ChoosePreemption, NeverTakesTheOldest) {
  const AdmissionView only = sequence(1, 9, true);
  EXPECT_EQ(choose_preemption({&only, 1}), std::nullopt);
  EXPECT_EQ(choose_preemption({}), std::nullopt);
}

}  // namespace
}  // namespace heddle::policy
