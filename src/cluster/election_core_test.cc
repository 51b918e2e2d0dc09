#include "cluster/election_core.h"

#include <functional>
#include <map>
#include <queue>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using namespace election;

ElectionRecord candidate(std::uint64_t holder) {
  return {.name = "n" + std::to_string(holder), .address = "a:1", .holder = holder};
}

template <class T>
std::vector<T> those(const std::vector<Command>& commands) {
  std::vector<T> found;
  for (const Command& each : commands) {
    if (const T* const one = std::get_if<T>(&each)) {
      found.push_back(*one);
    }
  }
  return found;
}

/// One core whose registry is in the hands of the test.
struct ElectionCoreTest : testing::Test {
  std::vector<Command> step(const Event& event) {
    std::vector<Command> commands;
    core.step(now, event, commands);
    return commands;
  }
  /// Ticks for so long; what it then wants.
  std::vector<Command> pass(Duration time) {
    std::vector<Command> all;
    for (const Instant end = now + time; now < end;) {
      now += 25ms;
      core.step(now, Tick{}, all);
    }
    return all;
  }
  /// Makes it leader of term 1 by a put that was sent at `now`, at revision 1.
  void lead() {
    step(Tick{});
    step(ReadDone{.reached = true});
    ASSERT_EQ(those<Put>(pass(700ms)).size(), 1U);
    const auto commands = step(PutDone{PutDone::Outcome::kPut, 1});
    ASSERT_EQ(those<Elected>(commands).size(), 1U);
  }
  static ReadDone other(Term term, Revision revision, std::uint64_t holder = 2) {
    ElectionRecord record = candidate(holder);
    record.term = term;
    return {.reached = true, .record = record, .revision = revision};
  }

  Instant now = Instant() + 1h;
  ElectionCore core{{}, candidate(1)};
};

TEST_F(ElectionCoreTest, TakesOverWhatNobodyHoldsAfterALease) {
  EXPECT_EQ(those<Read>(step(Tick{})).size(), 1U);
  EXPECT_TRUE(step(ReadDone{.reached = true}).empty());
  EXPECT_TRUE(pass(675ms).empty());
  const auto put = those<Put>(pass(25ms));
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].expected, 0U);
  EXPECT_EQ(put[0].record.term, 1U);
  const auto commands = step(PutDone{PutDone::Outcome::kPut, 5});
  EXPECT_EQ(those<Elected>(commands).at(0).term, 1U);
  EXPECT_EQ(those<Leader>(commands).at(0).name, "n1");
  EXPECT_EQ(core.leads(now), 1U);
}

TEST_F(ElectionCoreTest, TakesOverAtOnceWhereTheLeaderHasLeft) {
  step(Tick{});
  step(other(7, 40));
  ElectionRecord left = *other(7, 40).record;
  left.holder = 0;
  const auto put = those<Put>(step(Saw{left, 41}));
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].expected, 41U);
  EXPECT_EQ(put[0].record.term, 8U);
}

TEST_F(ElectionCoreTest, WaitsForALeaseAfterEachRenewalThatItSees) {
  step(Tick{});
  const auto heard = those<Leader>(step(other(7, 40)));
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0], (Leader{"n2", "a:1", 7}));
  EXPECT_TRUE(pass(600ms).empty());
  step(Saw{other(7, 41).record, 41});
  EXPECT_TRUE(pass(675ms).empty());
  EXPECT_EQ(those<Put>(pass(25ms)).size(), 1U);
}

TEST_F(ElectionCoreTest, DoesNotCallALeaderSilentForTimeThatItHasNotWatched) {
  step(Tick{});
  step(other(7, 40));
  now += 1h;
  EXPECT_TRUE(step(Tick{}).empty());
  EXPECT_TRUE(pass(600ms).empty());
}

TEST_F(ElectionCoreTest, RenewsAndGivesUpWhereThatDoesNotGetThrough) {
  lead();
  EXPECT_TRUE(pass(125ms).empty());
  const auto put = those<Put>(pass(25ms));
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].expected, 1U);
  EXPECT_EQ(put[0].record.beat, 1U);
  step(PutDone{PutDone::Outcome::kPut, 2});
  EXPECT_TRUE(those<Lost>(pass(475ms)).empty());
  const auto lost = those<Lost>(pass(25ms));
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].why, Why::kUnreached);
  EXPECT_EQ(core.leads(now), std::nullopt);
}

TEST_F(ElectionCoreTest, DoesNotLeadPastItsTimeEvenIfItHasNotBeenToldTheTime) {
  lead();
  EXPECT_EQ(core.leads(now + 499ms), 1U);
  EXPECT_EQ(core.leads(now + 500ms), std::nullopt);
}

TEST_F(ElectionCoreTest, CountsARenewalFromWhenItWasSent) {
  lead();
  ASSERT_EQ(those<Put>(pass(150ms)).size(), 1U);
  EXPECT_TRUE(pass(300ms).empty());
  step(PutDone{PutDone::Outcome::kPut, 2});
  EXPECT_EQ(core.leads(now + 199ms), 1U);
  EXPECT_EQ(core.leads(now + 200ms), std::nullopt);
}

TEST_F(ElectionCoreTest, LearnsOfItsOwnPutByTheWatchFirst) {
  step(Tick{});
  step(ReadDone{.reached = true});
  const auto put = those<Put>(pass(700ms));
  step(Saw{put.at(0).record, 9});
  EXPECT_EQ(core.leads(now), std::nullopt);
  EXPECT_EQ(those<Elected>(step(PutDone{PutDone::Outcome::kPut, 9})).size(), 1U);
}

TEST_F(ElectionCoreTest, TakesATermMoreWhereItDoesNotKnowThatItWasElected) {
  step(Tick{});
  step(ReadDone{.reached = true});
  const auto put = those<Put>(pass(700ms));
  EXPECT_EQ(those<Read>(step(PutDone{})).size(), 1U);
  const auto again =
      those<Put>(step(ReadDone{.reached = true, .record = put.at(0).record, .revision = 3}));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].record.term, 2U);
  EXPECT_EQ(again[0].expected, 3U);
}

TEST_F(ElectionCoreTest, YieldsToALaterTerm) {
  lead();
  const auto commands = step(Saw{other(2, 2).record, 2});
  EXPECT_EQ(those<Lost>(commands).at(0).why, Why::kSuperseded);
  EXPECT_EQ(those<Leader>(commands).at(0), (Leader{"n2", "a:1", 2}));
}

TEST_F(ElectionCoreTest, GoesBeyondATermThatItHasHeardOf) {
  lead();
  const auto commands = step(HeardOf{.term = 9});
  EXPECT_EQ(those<Lost>(commands).at(0).why, Why::kSuperseded);
  EXPECT_EQ(those<Put>(commands).at(0).record.term, 10U);
}

TEST_F(ElectionCoreTest, LeavesTheRecordToOthersWhenItStops) {
  lead();
  const auto commands = step(Stop{});
  EXPECT_EQ(those<Lost>(commands).at(0).why, Why::kStopped);
  const auto put = those<Put>(commands);
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].record.holder, 0U);
  EXPECT_EQ(put[0].record.term, 1U);
  EXPECT_FALSE(core.over());
  EXPECT_TRUE(step(PutDone{PutDone::Outcome::kPut, 2}).empty());
  EXPECT_TRUE(core.over());
}

TEST_F(ElectionCoreTest, DoesNotFreeARecordOfAnotherWhenItStops) {
  step(Tick{});
  step(other(3, 4));
  ASSERT_EQ(those<Put>(pass(700ms)).size(), 1U);
  EXPECT_TRUE(step(Stop{}).empty());
  EXPECT_EQ(those<Read>(step(PutDone{})).size(), 1U);
  EXPECT_TRUE(step(other(3, 4)).empty());
  EXPECT_TRUE(core.over());
}

TEST_F(ElectionCoreTest, DoesNotBelieveARecordThatWentBack) {
  step(Tick{});
  step(other(7, 40));
  EXPECT_EQ(those<Read>(step(LostTrack{})).size(), 1U);
  ElectionRecord left = *other(3, 20).record;
  left.holder = 0;
  EXPECT_TRUE(those<Put>(step(ReadDone{true, left, 20})).empty());
  const auto put = those<Put>(pass(700ms));
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].record.term, 8U);
  EXPECT_EQ(put[0].expected, 20U);
}

TEST_F(ElectionCoreTest, ReadsWhatItWrites) {
  const ElectionRecord record{.name = "a\"b", .address = "x:1", .term = 3, .holder = 4, .beat = 5};
  const auto read = parse_election_record(write_election_record(record));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, record);
  for (const char* text : {"", "[]", "{}", R"({"name":"a","address":"","term":-1})"}) {
    EXPECT_FALSE(parse_election_record(text)) << text;
  }
}

/// Candidates with clocks of their own that run apart and jump, before one register of which every
/// answer, put and event may come late or never.
class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed) {
    for (std::uint64_t i = 0; i < kCandidates; ++i) {
      start();
    }
  }

  void run(Duration time) {
    for (const Instant end = now_ + time; now_ < end && !testing::Test::HasFailure();) {
      const Instant next = now_ + 5ms;
      while (!agenda_.empty() && agenda_.begin()->first.first <= next) {
        now_ = std::max(now_, agenda_.begin()->first.first);
        const auto act = std::move(agenda_.extract(agenda_.begin()).mapped());
        act();
      }
      now_ = next;
      disturb();
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].alive && now_ >= nodes_[i].next_tick && now_ >= nodes_[i].frozen_until) {
          nodes_[i].next_tick = now_ + 25ms;
          tell(i, Tick{});
        }
      }
      check();
    }
  }

  void calm() { calm_ = true; }
  [[nodiscard]] std::size_t elections() const { return terms_.size(); }
  [[nodiscard]] std::size_t leaders() const {
    std::size_t count = 0;
    for (const Node& each : nodes_) {
      count += leads(each) ? 1U : 0U;
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kCandidates = 4;

  struct Node {
    ElectionCore core;
    double rate;
    Duration jumps{};
    Instant next_tick{};
    Instant frozen_until{};
    Instant may_jump{};
    Instant cut_until{};
    Instant deaf_until{};
    bool alive = true;
  };

  void start() {
    const double rate = 0.95 + 0.01 * static_cast<double>(rng_.below(11));
    nodes_.push_back({.core = ElectionCore({}, candidate(nodes_.size() + 1)), .rate = rate});
  }

  [[nodiscard]] Instant clock_of(const Node& node) const {
    const double ns = static_cast<double>(now_.time_since_epoch().count()) * node.rate;
    return Instant(Duration(static_cast<std::int64_t>(ns))) + node.jumps;
  }
  [[nodiscard]] std::optional<Term> leads(const Node& node) const {
    return node.alive ? node.core.leads(clock_of(node)) : std::nullopt;
  }

  void at(Duration delay, std::function<void()> act) {
    agenda_.emplace(std::pair(now_ + delay, ++order_), std::move(act));
  }
  Duration some(std::uint64_t most_ms) {
    return std::chrono::milliseconds(rng_.below(most_ms + 1));
  }
  /// How long a message takes.
  Duration way() { return !calm_ && rng_.below(20) == 0 ? some(900) : some(4); }
  bool lost() { return !calm_ && rng_.below(25) == 0; }

  void tell(std::size_t i, const Event& event) {
    Node& node = nodes_[i];
    if (!node.alive) {
      return;
    }
    if (now_ < node.frozen_until) {
      at(node.frozen_until - now_, [=, this] { tell(i, event); });
      return;
    }
    std::vector<Command> commands;
    node.core.step(clock_of(node), event, commands);
    for (const Command& each : commands) {
      obey(i, each);
    }
  }

  void obey(std::size_t i, const Command& command) {
    if (std::holds_alternative<Read>(command)) {
      const bool cut = now_ < nodes_[i].cut_until || lost();
      at(cut ? 300ms : way(), [=, this] {
        const ReadDone answer{
            .reached = !cut, .record = record_, .revision = record_ ? revision_ : 0};
        at(way(), [=, this] { tell(i, answer); });
      });
    } else if (const auto* put = std::get_if<Put>(&command)) {
      send(i, *put);
    } else if (const auto* elected = std::get_if<Elected>(&command)) {
      EXPECT_TRUE(terms_.empty() || elected->term > *terms_.rbegin()) << "terms only grow";
      terms_.insert(elected->term);
    }
  }

  void send(std::size_t i, const Put& put) {
    const bool cut = now_ < nodes_[i].cut_until;
    const bool unanswered = cut || lost();
    if (!cut) {
      at(way(), [=, this] {
        const auto outcome = apply(put);
        if (!unanswered) {
          const PutDone answer{outcome, revision_};
          at(way(), [=, this] { tell(i, answer); });
        }
      });
    }
    if (unanswered) {
      at(300ms, [=, this] { tell(i, PutDone{}); });
    }
  }

  PutDone::Outcome apply(const Put& put) {
    if (put.expected != (record_ ? revision_ : 0)) {
      return PutDone::Outcome::kRefused;
    }
    record_ = put.record;
    revision_ += 1 + rng_.below(3);
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if (now_ < nodes_[k].cut_until || now_ < nodes_[k].deaf_until) {
        continue;  // The watch tells later, or something newer.
      }
      const Saw saw{record_, revision_};
      at(way(), [=, this] { tell(k, saw); });
    }
    return PutDone::Outcome::kPut;
  }

  void disturb() {
    if (calm_) {
      return;
    }
    const std::size_t i = rng_.below(nodes_.size());
    Node& node = nodes_[i];
    switch (rng_.below(400)) {
      case 0:
        node.cut_until = now_ + some(3000);
        break;
      case 1:
        node.deaf_until = now_ + some(3000);
        break;
      case 2:
        node.frozen_until = now_ + some(3000);
        break;
      case 3:
        if (now_ >= node.may_jump) {
          node.jumps += some(10'000);
          node.may_jump = now_ + 2s;
        }
        break;
      case 4:
        if (nodes_.size() < 40) {
          node.alive = false;
          start();
        }
        break;
      case 5:
        tell(i, LostTrack{});
        break;
      default:
        break;
    }
  }

  /// Nobody leads beside another, of whatever term.
  void check() {
    std::size_t leading = 0;
    for (const Node& each : nodes_) {
      leading += leads(each) ? 1U : 0U;
    }
    EXPECT_LE(leading, 1U);
  }

  Rng rng_;
  Instant now_ = Instant() + 1s;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> agenda_{};
  std::uint64_t order_ = 0;
  std::vector<Node> nodes_{};
  std::optional<ElectionRecord> record_{};
  Revision revision_ = 100;
  std::set<Term> terms_{};
  bool calm_ = false;
};

TEST(ElectionWorldTest, HasOneLeaderAtMostAndOneInTheEnd) {
  std::size_t elections = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.run(60s);
    world.calm();
    world.run(10s);
    ASSERT_EQ(world.leaders(), 1U);
    elections += world.elections();
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(elections, 800U) << "the schedules are to be rough";
}

}  // namespace
}  // namespace heddle::cluster
