#include "cluster/kubernetes_registry.h"

#include <gmock/gmock.h>

#include "cluster/test_store.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// What an API server does beside what every store does: contract_test.cc.
struct KubernetesRegistryTest : test::LoopTest {
  KubernetesRegistryTest() {
    server.restart();
    registry = *open_registry(loop.get_executor(), server.url(), {.patience = 10s, .check = 50ms});
  }
  Revision put(const std::string& key, Revision expected, const std::string& value) {
    const auto done = wait(registry->put_if(key, expected, value));
    EXPECT_TRUE(done) << done.error().message;
    return done ? *done : 0;
  }
  std::unique_ptr<Watch> follow(Revision after) {
    return registry->watch("", after, [this](const Change& change) {
      told.push_back(change.kind == Change::Kind::kLost ? change.why : change.record.value);
    });
  }

  test::KubernetesStore server{};
  std::shared_ptr<Registry> registry{};
  std::vector<std::string> told{};
};

TEST_F(KubernetesRegistryTest, GoesOnAfterWatchesWereDropped) {
  Revision a = put("a", 0, "0");
  const auto watch = follow(a);
  std::vector<std::string> all;
  for (int i = 1; i <= 5; ++i) {
    server.misbehave(R"({"drop_watches":true})");
    all.push_back(std::to_string(i));
    a = put("a", a, all.back());
  }
  until([&] { return told.size() >= all.size(); });
  EXPECT_EQ(told, all);
}

TEST_F(KubernetesRegistryTest, KeepsUpByBookmarksWhereOnlyOthersChange) {
  const Revision a = put("a", 0, "0");
  const auto watch = follow(a);
  until([&] { return watch->trouble().empty(); });
  server.put_strange("x", "not ours");
  // What changed is told, and from a revision that the server would otherwise have forgotten.
  const auto seen = wait(registry->list(""));
  const Revision b = put("a", a, "1");
  until([&] { return told.size() == 1; });
  server.forget();
  server.misbehave(R"({"drop_watches":true})");
  put("a", b, "2");
  until([&] { return told.size() == 2; });
  EXPECT_THAT(told, ElementsAre("1", "2"));
}

TEST_F(KubernetesRegistryTest, HasLostTrackWhereTheServerSaysGone) {
  const Revision a = put("a", 0, "0");
  const auto watch = follow(a);
  put("a", a, "1");
  until([&] { return told.size() == 1; });
  server.misbehave(R"({"error_event":410})");
  until([&] { return told.size() == 2; });
  EXPECT_THAT(told[1], HasSubstr("410"));
  EXPECT_THAT(told[1], HasSubstr("the event is gone"));
}

TEST_F(KubernetesRegistryTest, OpensAStreamAnewThatTalksNonsense) {
  const Revision a = put("a", 0, "0");
  const auto watch = follow(a);
  const Revision b = put("a", a, "1");
  until([&] { return told.size() == 1; });
  server.misbehave(R"({"line":"{\"type\":\"ADDED\"}"})");
  until([&] { return !watch->trouble().empty(); });
  put("a", b, "2");
  until([&] { return told.size() == 2; });
  EXPECT_THAT(told, ElementsAre("1", "2"));
}

TEST_F(KubernetesRegistryTest, LosesTrackWhereAStreamGoesBack) {
  const Revision a = put("a", 0, "0");
  const auto watch = follow(a);
  put("a", a, "1");
  until([&] { return told.size() == 1; });
  server.misbehave(R"({"line":"{\"type\":\"DELETED\",\"object\":{\"metadata\":)"
                   R"({\"name\":\"heddle.a\",\"resourceVersion\":\"3\"}}}"})");
  until([&] { return told.size() == 2; });
  EXPECT_THAT(told[1], HasSubstr("revision 3 after"));
}

TEST_F(KubernetesRegistryTest, KnowsItsOwnPutWhoseAnswerWasLost) {
  server.misbehave(R"({"swallow":1})");
  const Revision a = put("a", 0, "mine");
  EXPECT_EQ((*wait(registry->get("a")))->revision, a);
  server.misbehave(R"({"swallow":1})");
  const Revision b = put("a", a, "mine too");
  EXPECT_GT(b, a);
  server.misbehave(R"({"swallow":1})");
  const auto removed = wait(registry->remove_if("a", b));
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(wait(registry->get("a"))->has_value());
}

TEST_F(KubernetesRegistryTest, GivesUpOnAServerThatIsTooSlow) {
  const auto hasty = *open_registry(loop.get_executor(), server.url(), {.patience = 300ms});
  server.misbehave(R"({"slow_s":5})");
  const auto got = wait(hasty->get("a"));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(got.error().message, HasSubstr("no answer in time"));
}

TEST_F(KubernetesRegistryTest, SaysWhatRightsItNeeds) {
  server.demand("secret");
  const auto got = wait(registry->get("a"));
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("status 401"));
  EXPECT_THAT(got.error().message, HasSubstr("needs get, list, watch, create, update and delete"));

  const test::Folder folder;
  const std::string file = folder.path() / "token";
  std::ofstream(file) << "secret\n";
  const auto opened =
      open_registry(loop.get_executor(), server.url() + "&token_file=" + file, {.patience = 10s});
  ASSERT_TRUE(opened);
  EXPECT_TRUE(wait((*opened)->get("a")));
}

TEST_F(KubernetesRegistryTest, KeepsRegistriesOfOneNamespaceApart) {
  std::string url = server.url();
  url.replace(url.find("tests?"), 6, "tests/blue?");
  const auto blue = *open_registry(loop.get_executor(), url, {.patience = 10s});
  ASSERT_TRUE(wait(blue->put_if("a", 0, "blue")));
  EXPECT_FALSE(wait(registry->get("a"))->has_value());
  EXPECT_TRUE(wait(registry->list(""))->records.empty());
  EXPECT_EQ(wait(blue->list(""))->records.size(), 1U);
}

}  // namespace
}  // namespace heddle::cluster
