#include "core/sequences.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

Submit two_choices() {
  Submit submit{.request = RequestId(1), .model = ModelId(2), .prompt = {1, 2, 3}, .age = 4s};
  submit.choices.resize(2);
  submit.choices[0].params.max_tokens = 10;
  submit.choices[1].params.max_tokens = 10;
  submit.choices[1].params.choice = 1;
  submit.choices[1].generated = {7, 8};
  return submit;
}

TEST(Sequences, ContinueWhatWasGeneratedBefore) {
  Sequences sequences;
  const auto ids = sequences.add(two_choices(), Instant{10s});
  EXPECT_EQ(sequences.find(ids[1])->tokens, 5);
  EXPECT_EQ(sequences.find(ids[1])->remaining, 8);
  EXPECT_EQ(sequences.find(ids[0])->arrived, Instant{6s});
  EXPECT_EQ(sequences.of_choice(RequestId(1), 1), ids[1]);
  EXPECT_EQ(sequences.oldest_admitted(), nullptr);
  sequences.admit(ids[1]);
  EXPECT_EQ(sequences.oldest_admitted()->id, ids[1]);
}

TEST(Sequences, PreemptionKeepsTokensAndLosesKv) {
  Sequences sequences;
  const SequenceId id = sequences.add(two_choices(), Instant{10s})[0];
  sequences.admit(id);
  EXPECT_FALSE(sequences.advance({.sequence = id, .computed = 3, .token = 9}));
  EXPECT_EQ(sequences.step_views({ModelId(2)}).at(0).pending, 1);
  sequences.preempt(id, Instant{11s});
  sequences.preempt(id, Instant{12s});
  EXPECT_EQ(sequences.find(id)->preempted, Instant{11s});
  EXPECT_EQ(sequences.find(id)->tokens, 4);
  EXPECT_FALSE(sequences.any_computed(ModelId(2)));
  EXPECT_TRUE(sequences.step_views({ModelId(2)}).empty());
}

TEST(Sequences, WhatIsInAPipeIsInNoPlanUntilItIsBack) {
  Sequences sequences;
  const auto ids = sequences.add(two_choices(), Instant{10s});
  sequences.admit(ids[0]);
  sequences.admit(ids[1]);
  sequences.set_in_pipe(ids[0]);
  EXPECT_TRUE(sequences.any_in_pipe());
  EXPECT_TRUE(sequences.any_computed(ModelId(2))) << "its blocks are there";
  ASSERT_EQ(sequences.step_views({ModelId(2)}).size(), 1U);
  EXPECT_EQ(sequences.step_views({ModelId(2)})[0].id, ids[1]);
  sequences.set_in_pipe(ids[1]);
  EXPECT_FALSE(sequences.advance({.sequence = ids[1], .computed = 3, .token = 9}));
  EXPECT_FALSE(sequences.advance({.sequence = ids[0], .computed = 3, .token = 9}));
  EXPECT_LT(sequences.find(ids[1])->turn, sequences.find(ids[0])->turn);
  EXPECT_EQ(sequences.step_views({ModelId(2)}).size(), 2U);
  sequences.set_in_pipe(ids[0]);
  sequences.preempt(ids[0], Instant{11s});
  EXPECT_FALSE(sequences.any_in_pipe());
}

TEST(Sequences, ARequestEndsWithItsLastSequence) {
  Sequences sequences;
  const auto ids = sequences.add(two_choices(), Instant{10s});
  sequences.remove(ids[0]);
  EXPECT_EQ(sequences.of_request(RequestId(1)).size(), 1U);
  sequences.remove(ids[1]);
  EXPECT_TRUE(sequences.empty());
  EXPECT_TRUE(sequences.of_request(RequestId(1)).empty());
}

}  // namespace
}  // namespace heddle::core
