#include "core/messages.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

TEST(GrowOlder, ARequestIsOlderAndItsDeadlineNearer) {
  WorkerMessage message = Submit{.request = RequestId(7), .age = 3ms, .due = 20ms};
  grow_older(message, 30ms);
  const auto& submit = std::get<Submit>(message);
  EXPECT_EQ(submit.age, 33ms);
  EXPECT_EQ(submit.due, -10ms) << "since";
}

TEST(GrowOlder, OtherMessagesStayWhatTheyAre) {
  WorkerMessage message = CancelRequest{.request = RequestId(7)};
  grow_older(message, 30ms);
  EXPECT_EQ(std::get<CancelRequest>(message), CancelRequest{.request = RequestId(7)});
}

}  // namespace
}  // namespace heddle::core
