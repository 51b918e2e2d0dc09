#include "worker/peer_wire.h"

#include <string>

#include <gtest/gtest.h>

#include "rpc/link.h"

#include <sys/socket.h>

namespace heddle::worker {
namespace {

class RelayWireTest : public testing::Test {
 protected:
  std::pair<Descriptor, Descriptor> ends_ = rpc::packet_pair().value();
};

TEST_F(RelayWireTest, RequestsAndRepliesComeAsTheyWereSent) {
  const PeerRequest sent{.ask = PeerAsk::kFetch,
                         .slot = 1,
                         .pieces = {{.page = PageId(7), .offset = 12, .bytes = 34},
                                    {.page = PageId(5), .offset = 0, .bytes = 56}}};
  ASSERT_TRUE(send_request(ends_.first, sent));
  const PeerRequest got = receive_request(ends_.second).value();
  EXPECT_EQ(got.ask, sent.ask);
  EXPECT_EQ(got.slot, sent.slot);
  EXPECT_EQ(got.pieces, sent.pieces);

  const Descriptor beside(::dup(0));
  ASSERT_TRUE(
      send_reply(ends_.second, {.answer = PeerAnswer::kGranted, .slot = 1, .bytes = 99}, &beside));
  Descriptor came;
  const PeerReply reply = receive_reply(ends_.first, std::chrono::minutes(1), came).value();
  EXPECT_EQ(reply.answer, PeerAnswer::kGranted);
  EXPECT_EQ(reply.slot, 1U);
  EXPECT_EQ(reply.bytes, 99U);
  EXPECT_TRUE(came);
  EXPECT_NE(came.get(), beside.get());
}

TEST_F(RelayWireTest, WhatCannotBeIsRefused) {
  const auto refused = [&](std::vector<std::uint64_t> words) {
    EXPECT_GT(::send(ends_.first.get(), words.data(), words.size() * 8, 0), 0);
    const auto got = receive_request(ends_.second);
    return !got && got.error().code == Code::kCorrupt;
  };
  EXPECT_TRUE(refused({0}));
  EXPECT_TRUE(refused({9, 0, 0})) << "no such question";
  EXPECT_TRUE(refused({1, kPeerSlots, 0})) << "no such slot";
  EXPECT_TRUE(refused({1, 0, 2, 7, 0, 1})) << "a piece less than it says";
  EXPECT_TRUE(refused({1, 0, 1, 7, 0, kPeerSlotBytes + 1})) << "more than a slot holds";
  EXPECT_TRUE(refused({1, 0, 2, 7, 0, kPeerSlotBytes, 8, 0, 1})) << "and of two pieces";
  EXPECT_GT(::send(ends_.first.get(), "abc", 3, 0), 0);
  EXPECT_EQ(receive_request(ends_.second).error().code, Code::kCorrupt);
}

TEST_F(RelayWireTest, AnEndThatIsGoneIsSaid) {
  ends_.first = Descriptor();
  Descriptor none;
  EXPECT_EQ(receive_request(ends_.second).error().code, Code::kUnavailable);
  EXPECT_EQ(receive_reply(ends_.second, std::chrono::minutes(1), none).error().code,
            Code::kUnavailable);
  EXPECT_EQ(send_request(ends_.second, {}).error().code, Code::kUnavailable);
}

TEST_F(RelayWireTest, WhoSaysNothingIsNotWaitedForForEver) {
  Descriptor none;
  const auto got = receive_reply(ends_.second, std::chrono::milliseconds(1), none);
  EXPECT_EQ(got.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::worker
