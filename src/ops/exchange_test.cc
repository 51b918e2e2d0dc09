#include "ops/exchange.h"

#include <vector>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

/// Stands for a group of which every other rank brings ones; notes what it is asked for.
class OnesGroup final : public collective::Collective {
 public:
  explicit OnesGroup(std::int64_t size) : size_(size) {}

  [[nodiscard]] std::int64_t rank() const override { return 0; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  Result<void> all_reduce(std::span<float> data) override {
    for (float& value : data) {
      value += static_cast<float>(size_ - 1);
    }
    return check();
  }
  Result<void> all_gather(std::span<float> matrix, std::span<const std::int64_t> ends) override {
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      if (static_cast<std::int64_t>(i) % ends.back() >= ends.front()) {
        matrix[i] = 1.0F;
      }
    }
    return check();
  }
  Result<void> agree(std::uint64_t /*value*/) override { return check(); }
  Result<std::int64_t> least(std::int64_t value) override {
    const Result<void> done = check();
    return done ? Result<std::int64_t>(value) : Result<std::int64_t>(done.error());
  }
  void abandon() override { abandoned_ = true; }

 private:
  [[nodiscard]] Result<void> check() const {
    return abandoned_ ? Result<void>(Error{Code::kUnavailable, "abandoned"}) : Result<void>();
  }

  std::int64_t size_;
  bool abandoned_ = false;
};

class ExchangeTest : public OpTest {
 protected:
  OnesGroup group_{3};
  std::vector<float> data_{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> ends_{1, 2, 3};
};

TEST_F(ExchangeTest, HappensInTheOrderOfTheStream) {
  all_reduce(context_, {.group = &group_, .data = matrix_of(data_.data(), 2, 3)});
  EXPECT_EQ(data_[0], 1.0F) << "not before the stream is synchronised";
  std::vector<float> copy(6);
  stream_.copy(reinterpret_cast<std::byte*>(copy.data()),
               reinterpret_cast<const std::byte*>(data_.data()),
               6 * sizeof(float));
  all_gather(context_, {.group = &group_, .data = matrix_of(data_.data(), 2, 3), .ends = &ends_});
  synchronize();
  EXPECT_EQ(copy, (std::vector<float>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(data_, (std::vector<float>{3, 1, 1, 6, 1, 1}));
}

TEST_F(ExchangeTest, AFailureEndsTheWorkOfTheStream) {
  group_.abandon();
  all_gather(context_, {.group = &group_, .data = matrix_of(data_.data(), 2, 3), .ends = &ends_});
  const std::vector<std::byte> source{std::byte{42}};
  std::vector<std::byte> target{std::byte{1}};
  stream_.copy(target.data(), source.data(), 1);
  const Result<void> done = stream_.synchronize();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kUnavailable);
  EXPECT_EQ(target[0], std::byte{1}) << "what follows runs";
}

TEST_F(ExchangeTest, ACutThatIsNotTheMatrixsIsABug) {
  const std::vector<std::int64_t> narrower{1, 1, 2};
  EXPECT_DEATH(
      all_gather(context_,
                 {.group = &group_, .data = matrix_of(data_.data(), 2, 3), .ends = &narrower}),
      "CHECK");
  EXPECT_DEATH(all_reduce(context_, {.group = nullptr, .data = matrix_of(data_.data(), 2, 3)}),
               "CHECK");
}

}  // namespace
}  // namespace heddle::ops
