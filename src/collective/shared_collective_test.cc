#include "collective/shared_collective.h"

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/rng.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::collective {
namespace {

using testing::HasSubstr;

/// What rank `rank` brings to round `round` of a test.
std::vector<float> data_of(std::uint64_t round, std::int64_t rank, std::size_t count) {
  Rng rng(round * 100 + static_cast<std::uint64_t>(rank));
  std::vector<float> data(count);
  for (float& value : data) {
    value = static_cast<float>(static_cast<double>(rng.below(2'000'001)) - 1e6) * 1e-3F;
  }
  return data;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Whether a sum over the ranks gives what adding in rank order gives.
bool sums(Collective& group, std::uint64_t round, std::size_t count) {
  std::vector<float> expected = data_of(round, 0, count);
  for (std::int64_t rank = 1; rank < group.size(); ++rank) {
    const std::vector<float> term = data_of(round, rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] += term[i];
    }
  }
  std::vector<float> got = data_of(round, group.rank(), count);
  return group.all_reduce(got).has_value() && same_bits(got, expected);
}

/// Whether a matrix of `rows` whose columns are cut at random is gathered.
bool gathers(Collective& group, std::uint64_t round, std::int64_t rows, std::int64_t width) {
  Rng rng(round);  // The same cut on all ranks; some parts may be empty.
  std::vector<std::int64_t> ends;
  for (std::int64_t rank = 1; rank < group.size(); ++rank) {
    ends.push_back(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(width) + 1)));
  }
  ends.push_back(width);
  std::sort(ends.begin(), ends.end());
  const std::vector<float> expected = data_of(round, 0, static_cast<std::size_t>(rows * width));
  std::vector<float> matrix(expected.size(), -1.0F);
  const auto at = static_cast<std::size_t>(group.rank());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = at == 0 ? 0 : ends[at - 1]; column < ends[at]; ++column) {
      const auto i = static_cast<std::size_t>(row * width + column);
      matrix[i] = expected[i];
    }
  }
  return group.all_gather(matrix, ends).has_value() && same_bits(matrix, expected);
}

/// Exchanges of random sizes, below, at and above a slot's.
bool exchanges(Collective& group, std::uint64_t seed, int rounds) {
  Rng rng(seed);
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t round = rng.next() % 1'000'000;
    const auto size = static_cast<std::int64_t>(rng.below(100));
    bool good = false;
    switch (rng.below(4)) {
      case 0:
        good = sums(group, round, static_cast<std::size_t>(size));
        break;
      case 1:
        good = gathers(group, round, static_cast<std::int64_t>(rng.below(5)), size + 1);
        break;
      case 2: {
        const auto least = group.least(10 + (group.rank() + size) % group.size());
        good = least.has_value() && *least == 10;
        break;
      }
      default:
        good = group.agree(round).has_value();
    }
    if (!good) {
      return false;
    }
  }
  return true;
}

constexpr std::size_t kSmallSlot = 64;  // 16 floats.

/// Runs `body(group)` on a thread for each rank, over one mapping, as sanitizers like it.
template <class Body>
void on_threads(std::int64_t ranks, Body&& body, std::size_t slot_bytes = kSmallSlot) {
  const auto area = SharedArea::create(ranks, slot_bytes).value();
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SharedCollective group(area, rank);
      body(group);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// Runs `body(group)` in a process for each rank; gives the wait statuses by rank. A body that
/// returns false ends its process with 1. `meanwhile(area, children)` runs in this process.
template <class Body, class Meanwhile>
std::vector<int> in_processes(std::int64_t ranks, Body&& body, Meanwhile&& meanwhile) {
  const auto area = SharedArea::create(ranks, kSmallSlot).value();
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    HEDDLE_CHECK(child >= 0);
    if (child == 0) {
      // As a worker gets it: a descriptor, and a mapping of its own.
      auto group = SharedCollective::attach(area->fd(), rank, ranks);
      ::_exit(group && body(**group) ? 0 : 1);
    }
    children.push_back(child);
  }
  meanwhile(*area, children);
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    HEDDLE_CHECK(::waitpid(child, &status, 0) == child);
    statuses.push_back(status);
  }
  return statuses;
}

TEST(SharedCollective, ThreadsExchangeDataOfAnySize) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
      on_threads(ranks, [&](Collective& group) { EXPECT_TRUE(exchanges(group, seed, 60)); });
    }
  }
}

TEST(SharedCollective, ProcessesExchangeDataOfAnySize) {
  for (const std::int64_t ranks : {2, 5}) {
    const auto statuses = in_processes(
        ranks,
        [](Collective& group) { return exchanges(group, 11, 60); },
        [](SharedArea&, const auto&) {});
    EXPECT_THAT(statuses, testing::Each(0));
  }
}

TEST(SharedCollective, TheSumIsTakenInRankOrder) {
  on_threads(3, [](Collective& group) {
    // (1e8 + 1) - 1e8 is 0 in float, 1e8 - 1e8 + 1 would be 1.
    constexpr std::array<float, 3> kTerms{1e8F, 1.0F, -1e8F};
    std::vector<float> data(40, kTerms.at(static_cast<std::size_t>(group.rank())));
    ASSERT_TRUE(group.all_reduce(data));
    EXPECT_THAT(data, testing::Each(0.0F));
  });
}

TEST(SharedCollective, RanksThatDoNotDoTheSameAllHearOfIt) {
  for (int difference = 0; difference < 4; ++difference) {
    on_threads(3, [&](Collective& group) {
      const bool odd = group.rank() == 2;
      std::vector<float> data(odd && difference == 0 ? 24 : 40, 1.0F);
      const std::vector<std::int64_t> ends = odd && difference == 1
                                                 ? std::vector<std::int64_t>{2, 3, 8}
                                                 : std::vector<std::int64_t>{2, 4, 8};
      const Result<void> met = difference == 0   ? group.all_reduce(data)
                               : difference == 1 ? group.all_gather(data, ends)
                               : difference == 2 ? group.agree(odd ? 5 : 4)
                               : odd             ? group.agree(40)
                                                 : group.all_reduce(data);
      ASSERT_FALSE(met);
      EXPECT_EQ(met.error().code, Code::kCorrupt);
      EXPECT_THAT(met.error().message, HasSubstr("rank 2 "));
      EXPECT_EQ(group.agree(1).error().code, Code::kUnavailable) << "that was its end";
    });
  }
}

TEST(SharedCollective, LeavingEndsItForTheOthersButNotWhatAllHaveEntered) {
  for (int round = 0; round < 50; ++round) {
    on_threads(3, [](Collective& group) {
      EXPECT_TRUE(sums(group, 7, 100));
      if (group.rank() != 1) {
        std::vector<float> data(10);
        EXPECT_EQ(group.all_reduce(data).error().code, Code::kUnavailable);
      }
    });
  }
}

TEST(SharedCollective, AbandoningFromAnotherProcessEndsAWait) {
  const auto statuses = in_processes(
      3,
      [](Collective& group) {
        std::vector<float> data(100, 1.0F);
        if (group.rank() == 0) {  // Does not take part, so that the others cannot but wait.
          ::pause();
        }
        const Result<void> met = group.all_reduce(data);
        return !met && met.error().code == Code::kUnavailable;
      },
      [](SharedArea& area, const std::vector<pid_t>& children) {
        area.abandon();
        ::kill(children[0], SIGKILL);
      });
  EXPECT_TRUE(WIFSIGNALED(statuses[0]));
  EXPECT_EQ(statuses[1], 0);
  EXPECT_EQ(statuses[2], 0);
}

// A rank is killed wherever it happens to be; the others get out once somebody has seen it.
TEST(SharedCollective, TheDeathOfARankEndsTheGroup) {
  for (int round = 0; round < 10; ++round) {
    const auto statuses = in_processes(
        3,
        [](Collective& group) {
          for (;;) {
            std::vector<float> data(100, 1.0F);
            if (const Result<void> met = group.all_reduce(data); !met) {
              return met.error().code == Code::kUnavailable;
            }
          }
        },
        [&](SharedArea& area, const std::vector<pid_t>& children) {
          while (area.barrier().phase() < 100) {  // They are well under way.
            std::this_thread::yield();
          }
          ::kill(children[1], SIGKILL);
          siginfo_t dead{};
          HEDDLE_CHECK(::waitid(P_PID, static_cast<id_t>(children[1]), &dead, WEXITED | WNOWAIT) ==
                       0);
          area.abandon();
        });
    EXPECT_EQ(statuses[0], 0);
    EXPECT_TRUE(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    EXPECT_EQ(statuses[2], 0);
  }
}

TEST(SharedCollective, AttachesToAGroupOfThatSizeOnly) {
  const auto area = SharedArea::create(2).value();
  EXPECT_TRUE(SharedCollective::attach(area->fd(), 1, 2));
  for (const auto& [rank, ranks] : {std::pair{0, 3}, {2, 2}, {-1, 2}}) {
    const auto group = SharedCollective::attach(area->fd(), rank, ranks);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Code::kInvalidArgument);
  }
  EXPECT_FALSE(SharedCollective::attach(-1, 0, 2));
}

}  // namespace
}  // namespace heddle::collective
