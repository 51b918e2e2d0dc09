#include "ops/guest_attention.h"

#include <array>
#include <chrono>
#include <thread>

#include "device/cuda/cuda_stream.h"
#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kHeads = 20;
constexpr std::int64_t kRows = 3;  ///< Of the batch; the last two are guests'.

struct Shape {
  std::int64_t kv_heads = 1;  ///< Of few the kernels for many rows take the group.
  std::int64_t head_dim = 12;
  DType dtype = DType::kF32;
};

/// Guests of a stream, and another stream as their host: over the same pages, in the same memory.
class GuestMeetingTest : public OpTest, public AttentionHost {
 protected:
  void begin_step(std::span<const GuestSequence> /*sequences*/) override {}
  void post(const GuestRows& /*rows*/) override { FAIL() << "a GPU's stream does not call it"; }
  bool await(const GuestRows& /*rows*/) override { return false; }
  std::optional<GuestMeeting> meet(std::int64_t layer, std::int64_t rows) override {
    EXPECT_EQ(layer, 3);
    EXPECT_EQ(rows, kRows - 1);
    ticket_ += 2;
    return asks_ ? std::optional(GuestMeeting{.query = query_area_.data(),
                                              .state = state_area_.data(),
                                              .posted = &flags_[0],
                                              .served = &flags_[16],
                                              .ticket = ticket_})
                 : std::nullopt;
  }

  void make(const Shape& shape) {
    d_ = shape.head_dim;
    cache_ = std::make_unique<PagedKvFixture>(
        PagedKvFixture::Shape{
            .kv_heads = shape.kv_heads, .head_dim = d_, .block_tokens = 16, .dtype = shape.dtype},
        std::vector<std::int64_t>{90, 200},
        rng_);
    for (std::int64_t s = 0; s < 2; ++s) {
      for (std::int64_t position = 0; position < 90 + s * 110; ++position) {
        const auto key = random(shape.kv_heads * d_);
        const auto value = random(shape.kv_heads * d_);
        cache_->put(s, position, key.data(), value.data());
      }
    }
    query_ = random(kRows * kHeads * d_);
    state_ = std::vector<float>(static_cast<std::size_t>(kRows * kHeads * (d_ + 2)), 7.0F);
    query_area_ = std::vector<float>(query_.size(), NAN);
    state_area_ = std::vector<float>(state_.size(), NAN);
  }

  static auto heads(float* data, std::int64_t rows, std::int64_t width) {
    return heads_of(matrix_of(data, rows, kHeads * width), 0, kHeads, width);
  }
  GuestAttentionArgs args(AttentionHost* host) {
    return {.host = host,
            .layer = 3,
            .attention = {.rows = {.begin = vector_of(begin_.data(), 3),
                                   .first_position = vector_of(first_.data(), 2)},
                          .query = heads(query_.data(), kRows, d_),
                          .kv = cache_->kv(),
                          .scale = 0.2F,
                          .parts = {.end = vector_of(border_.data(), 2),
                                    .left = heads(state_.data(), kRows, d_ + 2)}}};
  }

  /// What the host does of the layer that is posted next.
  void answer(device::Stream& host) {
    OpContext context{.stream = host, .kernels = context_.kernels};
    const std::uint32_t ticket = ticket_ + 2;
    host.await_flag(flags_[0], ticket);
    attention(context,
              {.rows = {.begin = vector_of(host_begin_.data(), 3),
                        .first_position = vector_of(border_.data(), 2)},
               .query = heads(query_area_.data(), 2, d_),
               .kv = cache_->kv(),
               .scale = 0.2F,
               .parts = {.end = vector_of(border_.data(), 2),
                         .left = heads(state_area_.data(), 2, d_ + 2)}});
    host.raise_flag(flags_[16], ticket);
  }

  /// A layer with this host or none; what is left.
  std::vector<float> run(AttentionHost* host) {
    std::fill(state_.begin(), state_.end(), 7.0F);
    post_guest_attention(context_, args(host));
    await_guest_attention(context_, args(host));
    synchronize();
    EXPECT_EQ(state_[0], 7.0F) << "another's row";
    return state_;
  }

  bool asks_ = true;
  std::uint32_t ticket_ = UINT32_MAX - 5;
  std::unique_ptr<std::array<device::Flag, 32>> flags_memory_ =
      std::make_unique<std::array<device::Flag, 32>>();
  std::array<device::Flag, 32>& flags_ = *flags_memory_;
  std::int64_t d_ = 0;
  std::unique_ptr<PagedKvFixture> cache_{};
  std::vector<std::int32_t> begin_{1, 2, 3};
  std::vector<std::int32_t> host_begin_{0, 1, 2};
  std::vector<std::int32_t> first_{89, 199};
  std::vector<std::int32_t> border_{48, 176};
  std::vector<float> query_{};
  std::vector<float> state_{};
  std::vector<float> query_area_{};
  std::vector<float> state_area_{};
};

constexpr std::array kShapes{Shape{.kv_heads = 1, .head_dim = 12, .dtype = DType::kF32},
                             Shape{.kv_heads = 4, .head_dim = 64, .dtype = DType::kBf16},
                             Shape{.kv_heads = 1, .head_dim = 32, .dtype = DType::kBf16},
                             Shape{.kv_heads = 5, .head_dim = 256, .dtype = DType::kF32}};

TEST_F(GuestMeetingTest, TheHostsAnswerIsTaken) {
  const auto backend = make_test_backend();
  for (const Shape& shape : kShapes) {
    make(shape);
    const std::vector<float> alone = run(nullptr);
    flags_[0] = flags_[16] = ticket_;
    answer(backend->stream());
    EXPECT_TRUE(same_bits(run(this), alone)) << shape.head_dim;
    EXPECT_EQ(flags_[16].load(), ticket_);
    EXPECT_EQ(query_area_[0], query_[static_cast<std::size_t>(kHeads * d_)]);
    EXPECT_TRUE(backend->stream().synchronize());
    // And not computed here: what the host has left stands, whatever it is.
    state_area_[5] = 42.0F;
    flags_[16] = ticket_ + 2;
    EXPECT_EQ(run(this)[static_cast<std::size_t>(kHeads * (d_ + 2) + 5)], 42.0F);
  }
}

TEST_F(GuestMeetingTest, WhoeverLetsTheStreamGoHasItComputeHere) {
  for (const Shape& shape : kShapes) {
    make(shape);
    const std::vector<float> alone = run(nullptr);
    flags_[0] = flags_[16] = ticket_;
    std::jthread host([this, ticket = ticket_ + 2] {
      while (flags_[0].load() != ticket) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      flags_[16] = ticket + 1;
    });
    EXPECT_TRUE(same_bits(run(this), alone)) << shape.head_dim;
  }
}

TEST_F(GuestMeetingTest, AHostThatIsAtAnotherLayerHasNotAnswered) {
  make(kShapes[0]);
  const std::vector<float> alone = run(nullptr);
  flags_[16] = ticket_ + 4;  // The next one's; and what lies there is none of this layer's.
  EXPECT_TRUE(same_bits(run(this), alone));
}

TEST_F(GuestMeetingTest, AHostThatIsNotAskedIsNotWaitedFor) {
  make(kShapes[1]);
  const std::vector<float> alone = run(nullptr);
  asks_ = false;
  EXPECT_TRUE(same_bits(run(this), alone));
  EXPECT_EQ(flags_[0].load(), 0U);
}

}  // namespace
}  // namespace heddle::ops
