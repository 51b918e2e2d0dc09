#include "worker/pipe.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rpc/link.h"

namespace heddle::worker {
namespace {

/// Three stages in a ring, on one loop.
class PipeTest : public testing::Test {
 protected:
  PipeTest() : heard_(3), closed_(3) {
    std::vector<std::pair<Descriptor, Descriptor>> sockets;
    for (int i = 0; i < 3; ++i) {
      auto pair = rpc::socket_pair().value();
      sockets.emplace_back(std::move(pair.first), std::move(pair.second));
    }
    for (std::size_t stage = 0; stage < 3; ++stage) {
      pipes_.push_back(std::make_unique<Pipe>(
          loop_.get_executor(),
          rpc::JoinPipe{
              .model = ModelId(7), .stage = static_cast<std::int64_t>(stage), .stages = 3},
          std::move(sockets[(stage + 2) % 3].second),
          std::move(sockets[stage].first),
          Pipe::Handlers{.on_payload =
                             [this, stage](std::uint64_t pipe, std::string payload) {
                               EXPECT_EQ(pipe, ids_.at(stage));
                               heard_[stage].push_back(std::move(payload));
                             },
                         .on_closed =
                             [this, stage](std::uint64_t pipe) {
                               EXPECT_EQ(pipe, ids_.at(stage));
                               ++closed_[stage];
                             },
                         .on_failed = [](const Error& error) { FAIL() << error.message; }}));
      ids_.push_back(pipes_.back()->id());
    }
  }
  ~PipeTest() override {
    pipes_.clear();
    loop_.poll();
  }

  /// Lets the loop do what there is to do until `enough`.
  template <class Enough>
  void until(Enough enough) {
    while (!enough()) {
      loop_.run_one();
    }
  }

  boost::asio::io_context loop_{1};
  std::vector<std::unique_ptr<Pipe>> pipes_{};
  std::vector<std::uint64_t> ids_{};
  std::vector<std::vector<std::string>> heard_;
  std::vector<int> closed_;
};

TEST_F(PipeTest, WhatAStageSendsComesToTheOneBehindInOrder) {
  EXPECT_TRUE(pipes_[0]->leads());
  EXPECT_FALSE(pipes_[2]->leads());
  pipes_[0]->send("a");
  pipes_[0]->send(std::string(1'000'000, 'b'));
  pipes_[2]->send("c");
  until([this] { return heard_[1].size() == 2 && heard_[0].size() == 1; });
  EXPECT_EQ(heard_[1][0], "a");
  EXPECT_EQ(heard_[1][1].size(), 1'000'000U);
  EXPECT_EQ(heard_[0][0], "c") << "behind the last is the first";
  EXPECT_TRUE(heard_[2].empty());
}

TEST_F(PipeTest, NeighboursHearThatAStageHasGone) {
  pipes_[1]->send("last words");
  pipes_[1].reset();
  until([this] { return closed_[0] > 0 && closed_[2] > 0; });
  EXPECT_EQ(heard_[2], std::vector<std::string>{"last words"});
  EXPECT_EQ(closed_[1], 0);
  pipes_[0]->send("to nobody");
  loop_.poll();
}

TEST_F(PipeTest, NoTwoPipesHaveTheSameName) {
  EXPECT_NE(ids_[0], ids_[1]);
  EXPECT_NE(ids_[1], ids_[2]);
}

}  // namespace
}  // namespace heddle::worker
