#include "cluster/election.h"

#include <gmock/gmock.h>

#include "cluster/test_store.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

/// Whole elections over a store; what a core decides is in election_core_test.cc.
struct ElectionTest : test::LoopTest, testing::WithParamInterface<const char*> {
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "etcd" && test::EtcdStore::program().empty()) {
      GTEST_SKIP() << "etcd is not there: ./dev test puts it into build/etcd";
    }
    if (kind == "file") {
      store = std::make_unique<test::FileStore>();
    } else {
      std::unique_ptr<test::ServerStore> server;
      if (kind == "etcd") {
        server = std::make_unique<test::EtcdStore>();
      } else {
        server = std::make_unique<test::KubernetesStore>();
      }
      server->restart();
      store = std::move(server);
    }
  }

  struct Candidate {
    std::vector<std::string> told{};
    std::vector<Term> terms{};
    std::string leader{};
    std::unique_ptr<Election> election{};
    [[nodiscard]] bool leads() const { return election != nullptr && election->leads(); }
  };
  std::unique_ptr<Candidate> stand(const std::string& name) {
    auto one = std::make_unique<Candidate>();
    Candidate* const told = one.get();
    auto registry = open_registry(loop.get_executor(), store->url(), {.patience = 1s});
    HEDDLE_CHECK(registry.has_value());
    one->election = std::make_unique<Election>(
        loop.get_executor(),
        *registry,
        "leader",
        name,
        name + ":1",
        ElectionHandlers{
            .elected =
                [told](Term term) {
                  told->told.emplace_back("elected");
                  told->terms.push_back(term);
                },
            .lost =
                [told](election::Why why, std::string_view) {
                  told->told.emplace_back(why == election::Why::kUnreached ? "unreached" : "lost");
                },
            .leader = [told](const election::Leader& leader) { told->leader = leader.name; }},
        kTimes);
    return one;
  }

  /// Long enough that a busy machine does not depose leaders.
  static constexpr ElectionTimes kTimes{
      .renewal = 200ms, .give_up = 2s, .lease = 2500ms, .tick = 25ms};
  std::unique_ptr<test::Store> store{};
};

TEST_P(ElectionTest, FollowsALeaderThatDiesAndOneThatLeaves) {
  auto one = stand("one");
  until([&] { return one->leads(); });
  auto two = stand("two");
  auto three = stand("three");
  until([&] { return two->leader == "one" && three->leader == "one"; });
  EXPECT_FALSE(two->leads());
  one->election.reset();  // As one that dies: it says nothing.
  until([&] { return two->leads() || three->leads(); });
  EXPECT_FALSE(two->leads() && three->leads());
  Candidate& second = two->leads() ? *two : *three;
  Candidate& third = two->leads() ? *three : *two;
  EXPECT_GT(second.terms.at(0), one->terms.at(0));
  http::run(loop, second.election->leave());
  EXPECT_THAT(second.told, ElementsAre("elected", "lost"));
  until([&] { return third.leads(); });
  EXPECT_GT(third.terms.at(0), second.terms.at(0));
}

TEST_P(ElectionTest, ElectsNobodyWhileTheStoreIsAwayAndGoesOnAfterwards) {
  if (!store->is_server()) {
    GTEST_SKIP() << "there is no server to freeze";
  }
  auto one = stand("one");
  until([&] { return one->leads(); });
  auto two = stand("two");
  until([&] { return two->leader == "one"; });
  store->signal(SIGSTOP);
  until([&] { return one->told.size() == 2; });
  EXPECT_THAT(one->told, ElementsAre("elected", "unreached"));
  EXPECT_FALSE(one->leads());
  EXPECT_FALSE(two->leads());
  store->signal(SIGCONT);
  until([&] { return one->leads() || two->leads(); });
  const Candidate& next = one->leads() ? *one : *two;
  EXPECT_GT(next.terms.back(), one->terms.front());
}

TEST_P(ElectionTest, GoesBeyondATermThatOthersSpeakOf) {
  auto one = stand("one");
  until([&] { return one->leads(); });
  one->election->heard_of(40);
  until([&] { return one->leads(); });
  EXPECT_EQ(one->terms.back(), 41U);
  EXPECT_THAT(one->told, ElementsAre("elected", "lost", "elected"));
}

TEST_P(ElectionTest, TakesOverARecordThatNobodyCanRead) {
  auto registry = *open_registry(loop.get_executor(), store->url(), {});
  ASSERT_TRUE(wait(registry->put_if("leader", 0, "\xff not JSON")));
  auto one = stand("one");
  until([&] { return one->leads(); });
  EXPECT_EQ(one->terms.back(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         ElectionTest,
                         testing::Values("file", "etcd", "kubernetes"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace heddle::cluster
