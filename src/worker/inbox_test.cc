#include "worker/inbox.h"

#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::worker {
namespace {

TEST(Inbox, KeepsTheOrderOfEachSender) {
  constexpr int kSenders = 4;
  constexpr int kEach = 2000;
  Inbox<std::pair<int, int>> inbox;
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&inbox, sender] {
      for (int i = 0; i < kEach; ++i) {
        inbox.push({sender, i});
      }
    });
  }
  std::vector<int> next(kSenders, 0);
  int received = 0;
  while (received < kSenders * kEach) {
    for (const auto& [sender, number] : inbox.wait()) {
      ASSERT_EQ(number, next[static_cast<std::size_t>(sender)]++);
      ++received;
    }
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
  EXPECT_TRUE(inbox.take().empty());
}

}  // namespace
}  // namespace heddle::worker
