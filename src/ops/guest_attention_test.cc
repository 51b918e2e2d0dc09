#include "ops/guest_attention.h"

#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

/// Remembers what it is asked, and answers with one number or not at all.
class ScriptedHost final : public AttentionHost {
 public:
  explicit ScriptedHost(bool answers) : answers_(answers) {}
  void begin_step(std::span<const GuestSequence> /*sequences*/) override {}
  void post(const GuestRows& rows) override { posted.push_back(rows); }
  bool await(const GuestRows& rows) override {
    if (answers_) {
      rows.state[0] = 42;
    }
    return answers_;
  }
  std::vector<GuestRows> posted{};

 private:
  bool answers_;
};

/// The second of two sequences has sixteen positions, or as many as a border wants, with a host.
class GuestAttentionTest : public OpTest {
 protected:
  static constexpr std::int64_t kDim = 32;
  static constexpr std::int64_t kHeads = 4;

  GuestAttentionTest() {
    for (std::int64_t position = 0; position < length_; ++position) {
      const auto key = random(2 * kDim);
      const auto value = random(2 * kDim);
      cache_.put(0, position, key.data(), value.data());
    }
  }

  GuestAttentionArgs args(AttentionHost* host) {
    const auto heads = [](float* data, std::int64_t width) {
      return heads_of(matrix_of(data, 2, kHeads * width), 0, kHeads, width);
    };
    return {.host = host,
            .layer = 3,
            .attention = {.rows = {.begin = vector_of(begin_.data(), 2),
                                   .first_position = vector_of(first_.data(), 1)},
                          .query = heads(query_.data(), kDim),
                          .kv = cache_.kv(),
                          .scale = 0.2F,
                          .parts = {.end = vector_of(border_.data(), 1),
                                    .left = heads(state_.data(), kDim + 2)}}};
  }

  const std::int64_t length_ = 2 * attention_border();
  PagedKvFixture cache_{
      {.kv_heads = 2, .head_dim = kDim, .block_tokens = 16, .dtype = DType::kF32}, {length_}, rng_};
  std::vector<std::int32_t> begin_{1, 2};  // Row 0 is another's.
  std::vector<std::int32_t> first_{static_cast<std::int32_t>(length_ - 1)};
  std::vector<std::int32_t> border_{static_cast<std::int32_t>(attention_border())};
  std::vector<float> query_ = random(2 * kHeads * kDim);
  std::vector<float> state_ = std::vector<float>(2 * kHeads * (kDim + 2), -1.0F);
};

TEST_F(GuestAttentionTest, TheHostIsGivenTheRowsOfGuestsAndItsAnswerStands) {
  ScriptedHost host(/*answers=*/true);
  post_guest_attention(context_, args(&host));
  await_guest_attention(context_, args(&host));
  synchronize();
  ASSERT_EQ(host.posted.size(), 1U);
  EXPECT_EQ(host.posted[0].layer, 3);
  EXPECT_EQ(host.posted[0].rows, 1);
  EXPECT_EQ(host.posted[0].query, query_.data() + kHeads * kDim);
  EXPECT_EQ(state_[kHeads * (kDim + 2)], 42);
  EXPECT_EQ(state_[0], -1) << "another's row";
}

TEST_F(GuestAttentionTest, WhatNobodyAnswersIsComputedHere) {
  ScriptedHost host(/*answers=*/false);
  post_guest_attention(context_, args(&host));
  await_guest_attention(context_, args(&host));
  synchronize();
  const std::vector<float> alone = state_;
  std::fill(state_.begin(), state_.end(), -1.0F);
  attention_here(args(nullptr).attention);
  EXPECT_EQ(alone, state_);
  EXPECT_EQ(state_[0], -1) << "another's row";
  EXPECT_GT(state_[kHeads * (kDim + 2) + kDim + 1], 0) << "a sum of weights";
}

}  // namespace
}  // namespace heddle::ops
