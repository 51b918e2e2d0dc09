#include "gateway/deadline.h"

#include <optional>

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;

class DeadlineTest : public testing::Test {
 protected:
  boost::asio::io_context loop{1};
  int acts = 0;
  Instant acted{};
  std::optional<Deadline> deadline{std::in_place, loop, [this] {
                                     ++acts;
                                     acted = steady_now();
                                   }};
};

TEST_F(DeadlineTest, ActsOnceWhenItHasPassed) {
  const Instant begun = steady_now();
  deadline->set(5ms);
  loop.run();
  EXPECT_EQ(acts, 1);
  EXPECT_GE(acted - begun, 5ms);
}

TEST_F(DeadlineTest, CanBePutOff) {
  const Instant begun = steady_now();
  deadline->set(1ms);
  deadline->set(20ms);
  loop.run();
  EXPECT_EQ(acts, 1);
  EXPECT_GE(acted - begun, 20ms);
}

TEST_F(DeadlineTest, CanBeBroughtForward) {
  deadline->set(1h);
  deadline->set(1ms);
  loop.run();
  EXPECT_EQ(acts, 1);
}

TEST_F(DeadlineTest, CanBeTakenBackAndSetAgain) {
  deadline->set(1ms);
  deadline->clear();
  loop.run();
  EXPECT_EQ(acts, 0);
  loop.restart();
  deadline->set(1ms);
  loop.run();
  EXPECT_EQ(acts, 1);
}

TEST_F(DeadlineTest, DoesNothingOnceItIsGone) {
  deadline->set(1ms);
  deadline.reset();
  loop.run();
  EXPECT_EQ(acts, 0);
}

}  // namespace
}  // namespace heddle::gateway
