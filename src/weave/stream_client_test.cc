#include "weave/stream_client.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weave/stream_pair_test.h"

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;
using test::StreamPair;

TEST(StreamClient, AHostThatDoesNotAnswerIsWaitedForOnceAndAskedAgainWhenItHas) {
  StreamPair pair(700ms);
  const std::vector<float> alone = pair.run_layers(nullptr);
  EXPECT_EQ(pair.step(), alone) << "computed here, to the bit";
  EXPECT_EQ(pair.client->let_go_of(), 1U);
  EXPECT_EQ(pair.step(), alone);
  EXPECT_EQ(pair.client->asked(), 1U) << "not while it is at the first step";
  // It comes round, and its answers to the first step are for nobody.
  ASSERT_TRUE(pair.server->serve(5s).value());
  std::jthread host([&] { EXPECT_TRUE(pair.server->serve(5s).value()); });
  const std::vector<float> woven = pair.step();
  EXPECT_EQ(pair.client->asked(), 2U);
  EXPECT_EQ(pair.client->let_go_of(), 1U);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_NEAR(woven[i], alone[i], 2e-5F) << i;
  }
}

// The answers come while the stream is let go, and after it: each layer has a right state.
TEST(StreamClient, ALateHostDisturbsNothing) {
  StreamPair pair(8ms);
  const std::vector<float> alone = pair.run_layers(nullptr);
  for (int step = 0; step < 20; ++step) {
    std::jthread host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(step));
      EXPECT_TRUE(pair.server->serve(20ms).has_value());
    });
    const std::vector<float> woven = pair.step();
    for (std::size_t i = 0; i < alone.size(); ++i) {
      ASSERT_NEAR(woven[i], alone[i], 2e-5F) << i << " of step " << step;
    }
  }
}

// What is answered to it late is for nobody, though its layers are the next step's too.
TEST(StreamClient, AStepThatFailedBeforeItsLayersDoesNotSpoilTheNext) {
  StreamPair pair;
  const std::vector<float> alone = pair.run_layers(nullptr);
  auto other = StreamPair::sequences();
  other[1].border = test::kBorder;
  pair.client->begin_step(other);
  std::jthread host([&] {
    EXPECT_TRUE(pair.server->serve(20s).value());
    EXPECT_TRUE(pair.server->serve(20s).value());
  });
  while (!pair.server->running()) {
    std::this_thread::sleep_for(1ms);
  }
  const std::vector<float> woven = pair.step();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_NEAR(woven[i], alone[i], 2e-5F) << i;
  }
}

TEST(StreamClient, CountsWhatTheHostHasAnsweredAndWhatNobody) {
  StreamPair pair(300ms);
  {
    std::jthread host([&] { EXPECT_TRUE(pair.server->serve(20s).value()); });
    pair.step();
  }
  EXPECT_EQ(pair.client->counts().answered, 2U);
  EXPECT_EQ(pair.client->counts().unanswered, 0U);
  pair.step();  // With nobody there: it is asked, and let go of.
  EXPECT_EQ(pair.client->counts().answered, 2U);
  EXPECT_EQ(pair.client->counts().unanswered, 2U);
  pair.step();  // Nor asked again.
  EXPECT_EQ(pair.client->counts().answered, 2U);
  EXPECT_EQ(pair.client->counts().unanswered, 4U);
}

TEST(StreamClient, AStepThatTheAreaHasNoRoomForIsNotPosted) {
  StreamPair pair;
  const std::vector<ops::GuestSequence> many(5, StreamPair::sequences()[0]);
  pair.client->begin_step(many);
  EXPECT_FALSE(pair.client->meet(0, 5).has_value());
  EXPECT_EQ(pair.client->asked(), 0U);
  EXPECT_FALSE(pair.server->serve(1ms).value());
}

TEST(StreamClient, AClosedPairIsNotAsked) {
  StreamPair pair;
  const std::vector<float> alone = pair.run_layers(nullptr);
  pair.area->close();
  EXPECT_EQ(pair.step(), alone);
  EXPECT_EQ(pair.client->asked(), 0U);
}

TEST(StreamClient, APairThatIsClosedMeanwhileIsLeftAtOnce) {
  StreamPair pair(600s);
  const std::vector<float> alone = pair.run_layers(nullptr);
  const auto began = std::chrono::steady_clock::now();
  pair.client->begin_step(StreamPair::sequences());
  pair.area->close();
  EXPECT_EQ(pair.run_layers(pair.client.get()), alone);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
}

}  // namespace
}  // namespace heddle::weave
