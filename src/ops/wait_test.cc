#include "ops/wait.h"

#include <thread>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class WaitTest : public OpTest {};

TEST_F(WaitTest, HoldsTheStreamUntilTheMarkIsReached) {
  std::atomic<std::uint64_t> mark{10};
  std::vector<std::byte> source{std::byte{0}};
  std::vector<std::byte> target{std::byte{1}};
  std::thread setter([&] {  // Before the call: a backend may wait there already.
    mark = 20;              // Not enough.
    mark.notify_all();
    source[0] = std::byte{42};
    mark = 30;
    mark.notify_all();
  });
  wait(context_, {.watermark = &mark, .value = 10});
  wait(context_, {.watermark = &mark, .value = 30});
  stream_.copy(target.data(), source.data(), 1);
  synchronize();
  setter.join();
  EXPECT_EQ(target[0], std::byte{42}) << "ran before what it waited for";
}

TEST_F(WaitTest, DropsWhatFollowsWhenAbandoned) {
  std::atomic<std::uint64_t> mark{10};
  const std::vector<std::byte> source{std::byte{42}};
  std::vector<std::byte> target{std::byte{1}};
  std::thread setter([&] {
    mark = kAbandoned;
    mark.notify_all();
  });
  wait(context_, {.watermark = &mark, .value = 30});
  stream_.copy(target.data(), source.data(), 1);
  const auto done = stream_.synchronize();
  setter.join();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kCancelled);
  EXPECT_EQ(target[0], std::byte{1});

  stream_.copy(target.data(), source.data(), 1);
  ASSERT_TRUE(stream_.synchronize()) << "the stream goes on";
  EXPECT_EQ(target[0], std::byte{42});
}

}  // namespace
}  // namespace heddle::ops
