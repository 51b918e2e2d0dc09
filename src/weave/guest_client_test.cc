#include "weave/guest_client.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "weave/test_pair.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;
using test::Pair;

/// What a server says to one layer that was posted.
Result<bool> serve(Pair& pair) {
  return pair.server->serve(Duration{}, 5s);
}

/// The states that the hot side would compute itself.
std::vector<float> computed_here(Pair& pair, std::int64_t layer) {
  const Geometry g = test::geometry();
  const auto sequences = Pair::sequences();
  std::vector<std::int32_t> table(2 * 64);
  std::vector<std::int32_t> border;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    border.push_back(sequences[s].border);
    std::copy(sequences[s].blocks[0].begin(),
              sequences[s].blocks[0].end(),
              table.begin() + static_cast<std::ptrdiff_t>(s) * 64);
  }
  const std::vector<std::int32_t> begin{0, 1, 2};
  const std::vector<std::int32_t> first{1000, 1000};
  std::vector<float> state(pair.state.size());
  const auto heads = [](float* data, std::int64_t width) {
    return ops::heads_of(ops::matrix_of(data, 2, test::kHeads * width), 0, test::kHeads, width);
  };
  const LayerPlace& place = g.places[static_cast<std::size_t>(layer)];
  ops::attention_here({.rows = {.begin = ops::vector_of(begin.data(), 3),
                                .first_position = ops::vector_of(first.data(), 2)},
                       .query = heads(pair.query.data(), test::kHeadDim),
                       .kv = {.base = reinterpret_cast<std::byte*>(pair.arena.data()),
                              .block_bytes = place.block_bytes,
                              .block_tokens = place.block_tokens,
                              .key_offset = place.key_offset,
                              .value_offset = place.value_offset,
                              .kv_heads = test::kKvHeads,
                              .head_dim = test::kHeadDim,
                              .dtype = spec::DType::kF32,
                              .table = ops::matrix_of(table.data(), 2, 64)},
                       .scale = g.scale,
                       .parts = {.end = ops::vector_of(border.data(), 2),
                                 .left = heads(state.data(), test::kHeadDim + 2)}});
  return state;
}

TEST(GuestClient, TheHostComputesWhatTheHotSideWould) {
  Pair pair;
  std::atomic<bool> over = false;
  std::thread host([&] {
    while (!over) {
      ASSERT_TRUE(pair.server->serve(50us, 10ms));
    }
  });
  const auto sequences = Pair::sequences();
  for (int step = 0; step < 20; ++step) {
    pair.client->begin_step(sequences);
    for (const std::int64_t layer : {0, 2}) {
      std::fill(pair.state.begin(), pair.state.end(), -1.0F);
      pair.client->post(pair.rows(layer));
      ASSERT_TRUE(pair.client->await(pair.rows(layer)));
      ASSERT_EQ(pair.state, computed_here(pair, layer)) << "step " << step << " layer " << layer;
    }
  }
  over = true;
  host.join();
  EXPECT_EQ(pair.client->counts().answered, 40U);
  EXPECT_EQ(pair.server->layers(), 40U);
  EXPECT_EQ(pair.client->counts().unanswered, 0U);
}

TEST(GuestClient, AHostThatDoesNotAnswerIsGivenUpForTheStepAndTriedAgain) {
  Pair pair({.look = Duration{}, .patience = 20ms});
  const auto sequences = Pair::sequences();
  pair.client->begin_step(sequences);
  pair.client->post(pair.rows(0));
  EXPECT_FALSE(pair.client->await(pair.rows(0)));
  pair.client->post(pair.rows(2));
  EXPECT_FALSE(pair.client->await(pair.rows(2))) << "for the rest of the step";
  EXPECT_EQ(pair.client->counts().unanswered, 2U);
  ASSERT_TRUE(serve(pair).value()) << "late";
  pair.client->begin_step(sequences);
  pair.client->post(pair.rows(2));
  ASSERT_TRUE(serve(pair).value());
  EXPECT_TRUE(pair.client->await(pair.rows(2)));
  EXPECT_EQ(pair.state, computed_here(pair, 2)) << "not of the layer that was late";
}

/// A process that serves the pair's area as long as it lives.
class HostProcess {
 public:
  /// `stopped`: it takes nothing before it is killed.
  HostProcess(Pair& pair, bool stopped) : pid_(fork()) {
    if (pid_ != 0) {
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (stopped) {
      pause();
    }
    const auto server = GuestServer::create(JobArea::attach(pair.area->fd()).value(),
                                            reinterpret_cast<const std::byte*>(pair.arena.data()),
                                            test::kPageBytes,
                                            test::kernels())
                            .value();
    server->lend(pair.lent);
    while (server->serve(50us, 1s)) {
    }
    _exit(1);
  }
  ~HostProcess() { kill(); }
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(std::exchange(pid_, 0), nullptr, 0);
    }
  }

 private:
  pid_t pid_;
};

/// Steps until the host answers one; with the right states.
void answered_at_last(Pair& pair) {
  for (bool answered = false; !answered;) {
    std::fill(pair.state.begin(), pair.state.end(), -1.0F);
    pair.client->begin_step(Pair::sequences());
    pair.client->post(pair.rows(0));
    answered = pair.client->await(pair.rows(0));
  }
  ASSERT_EQ(pair.state, computed_here(pair, 0));
}

TEST(GuestClient, AHostThatIsKilledBeforeItTakesALayerIsReplaced) {
  Pair pair({.look = Duration{}, .patience = 5ms});
  for (int round = 0; round < 100; ++round) {
    HostProcess host(pair, true);
    pair.client->begin_step(Pair::sequences());
    pair.client->post(pair.rows(2));
    host.kill();
    ASSERT_FALSE(pair.client->await(pair.rows(2))) << round;
    HostProcess next(pair, false);
    answered_at_last(pair);
  }
}

TEST(GuestClient, WhatAHostServedBeforeItWasKilledIsTaken) {
  Pair pair;
  for (int round = 0; round < 100; ++round) {
    HostProcess host(pair, false);
    const auto before = pair.area->served().get();
    std::fill(pair.state.begin(), pair.state.end(), -1.0F);
    pair.client->begin_step(Pair::sequences());
    pair.client->post(pair.rows(2));
    while (pair.area->served().get() == before) {
      std::this_thread::yield();
    }
    host.kill();
    ASSERT_TRUE(pair.client->await(pair.rows(2))) << round;
    ASSERT_EQ(pair.state, computed_here(pair, 2)) << round;
  }
}

TEST(GuestClient, ClosingWakesBothSides) {
  Pair pair;
  pair.client->begin_step(Pair::sequences());
  pair.client->post(pair.rows(0));
  std::thread closes([&] {
    while (!pair.area->served().sleeps()) {
      std::this_thread::yield();
    }
    pair.area->close();
  });
  EXPECT_FALSE(pair.client->await(pair.rows(0)));
  closes.join();
  const auto served = serve(pair);
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, Code::kUnavailable);
}

TEST(GuestClient, AStepTooLargeForTheAreaIsNotPosted) {
  Pair pair;
  auto many = Pair::sequences();
  many.resize(5, many.front());
  pair.client->begin_step(many);
  pair.client->post(pair.rows(0));
  EXPECT_FALSE(pair.client->await(pair.rows(0)));
  auto longer = Pair::sequences();
  longer[0].blocks[0].resize(65);
  pair.client->begin_step(longer);
  pair.client->post(pair.rows(0));
  EXPECT_FALSE(pair.client->await(pair.rows(0)));
  EXPECT_FALSE(pair.server->serve(Duration{}, 1ms).value());
}

}  // namespace
}  // namespace heddle::weave
