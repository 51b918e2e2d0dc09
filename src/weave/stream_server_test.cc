#include "weave/stream_server.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weave/stream_pair_test.h"

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;
using test::StreamPair;

constexpr std::uint64_t kPagesMore = 1000;

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 2e-5F) << i;
  }
}

TEST(StreamServer, AnswersAllLayersOfAStep) {
  StreamPair pair;
  const std::vector<float> alone = pair.run_layers(nullptr);
  for (int step = 0; step < 3; ++step) {
    std::jthread host([&] { EXPECT_TRUE(pair.server->serve(5s).value()); });
    expect_near(pair.step(), alone);
  }
  EXPECT_EQ(pair.server->layers(), 6U);
  EXPECT_EQ(pair.client->asked(), 3U);
  EXPECT_EQ(pair.client->let_go_of(), 0U);
  EXPECT_FALSE(pair.server->serve(1ms).value()) << "nothing came";
}

TEST(StreamServer, AHotSideThatGoesAwayDoesNotHoldItsStream) {
  StreamPair pair;
  pair.client->begin_step(StreamPair::sequences());  // And posts no layer.
  std::jthread closer([&] {
    std::this_thread::sleep_for(30ms);
    pair.area->close();
  });
  EXPECT_TRUE(pair.server->serve(5s).has_value());
  EXPECT_EQ(pair.server->serve(5s).error().code, Code::kUnavailable);
}

TEST(StreamServer, ALargerLeaseWaitsForNoStep) {
  StreamPair pair;
  pair.client->begin_step(StreamPair::sequences());  // And posts no layer.
  std::jthread host([&] { EXPECT_TRUE(pair.server->serve(60s).has_value()); });
  while (!pair.server->running()) {
    std::this_thread::yield();
  }
  std::vector<PageId> more = pair.lent;
  more.emplace_back(kPagesMore);
  pair.server->lend(more);
  EXPECT_TRUE(pair.server->running()) << "it is still at that step";
  pair.area->close();
  pair.server->lend({});
  EXPECT_FALSE(pair.server->running()) << "what is not lent any more is not read any more";
}

TEST(StreamServer, BlocksOutsideTheLeaseAreNotRead) {
  for (const std::int32_t block : {-1, 1 << 30, 1 << 20}) {
    StreamPair pair;
    const std::vector<float> alone = pair.run_layers(nullptr);
    auto sequences = StreamPair::sequences();
    sequences[1].blocks[0][2] = block;
    pair.client->begin_step(sequences);
    const auto refused = pair.server->serve(5s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().message;
    expect_near(pair.run_layers(pair.client.get()), alone);
    EXPECT_EQ(pair.client->let_go_of(), 1U);
  }
}

TEST(StreamServer, AGroupThatThereIsNotIsRefused) {
  StreamPair pair;
  pair.client->begin_step(StreamPair::sequences());
  pair.area->job().groups = 1U << 5U;
  EXPECT_EQ(pair.server->serve(5s).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(pair.area->closed());
}

}  // namespace
}  // namespace heddle::weave
