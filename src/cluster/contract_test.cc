// What holds for every registry, whatever store is behind it.

#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "cluster/registry.h"
#include "cluster/test_store.h"

#include <sys/prctl.h>

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using testing::ElementsAre;
using testing::HasSubstr;
using Shared = std::shared_ptr<Registry>;

/// A real API server, whose Leases tests make and remove. It is not killed.
class RealKubernetes final : public test::Store {
 public:
  static std::string address() {
    const char* const url = std::getenv("HEDDLE_TEST_KUBERNETES");
    return url == nullptr ? "" : url;
  }
  [[nodiscard]] std::string url() const override { return address(); }
  [[nodiscard]] bool is_server() const override { return false; }
  void save() override {}
  void restore() override {}
  void put_strange(const std::string& /*key*/, const std::string& /*value*/) override {}
  void forget() override {}
};

struct ContractTest : test::LoopTest, testing::WithParamInterface<std::string> {
  void SetUp() override {
    if (GetParam() == "etcd") {
      if (test::EtcdStore::program().empty()) {
        GTEST_SKIP() << "etcd is not there: ./dev test puts it into build/etcd";
      }
      start<test::EtcdStore>();
    } else if (GetParam() == "kubernetes") {
      start<test::KubernetesStore>();
    } else if (GetParam() == "real_kubernetes") {
      if (RealKubernetes::address().empty()) {
        GTEST_SKIP() << "HEDDLE_TEST_KUBERNETES does not name a registry: kubernetes://NAMESPACE"
                        "/NAME?server=URL&token_file=FILE&ca=FILE";
      }
      store = std::make_unique<RealKubernetes>();
      clear();
    } else {
      store = std::make_unique<test::FileStore>();
    }
  }
  void TearDown() override {
    if (GetParam() == "real_kubernetes" && store != nullptr) {
      clear();
    }
  }
  template <class T>
  void start() {
    auto server = std::make_unique<T>();
    server->restart();
    store = std::move(server);
  }
  void clear() {
    const Shared registry = open();
    const auto all = wait(registry->list(""));
    ASSERT_TRUE(all) << all.error().message;
    for (const Record& each : all->records) {
      (void)wait(registry->remove_if(each.key, each.revision));
    }
  }
  bool is_real() const { return GetParam() == "real_kubernetes"; }

  Shared open(RegistryOptions options = {.patience = 10s, .check = 50ms}) {
    auto registry = open_registry(loop.get_executor(), store->url(), options);
    HEDDLE_CHECK(registry.has_value());
    return *registry;
  }
  Revision put(const Shared& registry,
               const std::string& key,
               Revision expected,
               const std::string& value,
               Duration life = {}) {
    const auto done = wait(registry->put_if(key, expected, value, life));
    EXPECT_TRUE(done) << done.error().message;
    return done ? *done : 0;
  }

  /// Writes down what a watch tells: "key=value", "key-" or "lost".
  std::unique_ptr<Watch> follow(const Shared& registry, const std::string& prefix, Revision after) {
    return registry->watch(prefix, after, [this](const Change& change) {
      const bool is_put = change.kind == Change::Kind::kPut;
      const bool lost = change.kind == Change::Kind::kLost;
      told.push_back(lost     ? "lost"
                     : is_put ? change.record.key + "=" + change.record.value
                              : change.record.key + "-");
      why = change.why;
      EXPECT_TRUE(lost || change.record.revision > last) << "changes come in order";
      last = std::max(last, change.record.revision);
    });
  }

  std::unique_ptr<test::Store> store{};
  std::vector<std::string> told{};
  std::string why{};
  Revision last = 0;
};

TEST_P(ContractTest, PutsReadsAndRemovesUnderACondition) {
  const Shared registry = open();
  const auto absent = wait(registry->get("hosts/a"));
  ASSERT_TRUE(absent) << absent.error().message;
  EXPECT_FALSE(absent->has_value());

  const std::string bytes("\0\xff\n\"x", 5);
  const Revision first = put(registry, "hosts/a", 0, bytes);
  const auto found = wait(registry->get("hosts/a"));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ(**found, (Record{"hosts/a", bytes, first}));

  const auto again = wait(registry->put_if("hosts/a", 0, "other"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kFailedPrecondition) << again.error().message;
  const Revision second = put(registry, "hosts/a", first, "");
  EXPECT_GT(second, first);
  EXPECT_EQ(wait(registry->put_if("hosts/a", first, "x")).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(wait(registry->put_if("hosts/b", first, "x")).error().code, Code::kFailedPrecondition);

  EXPECT_EQ(wait(registry->remove_if("hosts/a", first)).error().code, Code::kFailedPrecondition);
  const auto removed = wait(registry->remove_if("hosts/a", second));
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(wait(registry->remove_if("hosts/a", second)).error().code, Code::kFailedPrecondition);
  EXPECT_GT(put(registry, "hosts/a", 0, "back"), second);
}

TEST_P(ContractTest, ListsAllThatBeginSo) {
  const Shared registry = open();
  constexpr int kMany = 150;  // More than there are in one answer.
  for (int i = 0; i < kMany; ++i) {
    put(registry, "m/" + std::to_string(1000 + i) + ".0.b-c", 0, std::to_string(i));
  }
  const Revision newest = put(registry, "n", 0, "n");
  const auto some = wait(registry->list("m/"));
  ASSERT_TRUE(some) << some.error().message;
  ASSERT_EQ(some->records.size(), kMany);
  EXPECT_GE(some->revision, newest);
  for (int i = 0; i < kMany; ++i) {
    EXPECT_EQ(some->records[static_cast<std::size_t>(i)].key,
              "m/" + std::to_string(1000 + i) + ".0.b-c");
    EXPECT_EQ(some->records[static_cast<std::size_t>(i)].value, std::to_string(i));
  }
  EXPECT_EQ(wait(registry->list(""))->records.size(), kMany + 1U);
  EXPECT_TRUE(wait(registry->list("x"))->records.empty());
}

asio::awaitable<void> raise(Shared registry, int times, int& left) {
  for (int done = 0; done < times;) {
    const auto found = co_await registry->get("counter");
    HEDDLE_CHECK(found.has_value());
    const int count = *found ? std::stoi((*found)->value) : 0;
    const Revision expected = *found ? (*found)->revision : 0;
    const auto put = co_await registry->put_if("counter", expected, std::to_string(count + 1));
    HEDDLE_CHECK(put || put.error().code == Code::kFailedPrecondition);
    done += put ? 1 : 0;
  }
  --left;
}

TEST_P(ContractTest, LosesNoUpdateOfManyClients) {
  constexpr int kClients = 5;
  constexpr int kTimes = 8;
  int left = kClients;
  std::vector<Shared> registries;
  for (int i = 0; i < kClients; ++i) {
    registries.push_back(open());
    asio::co_spawn(loop, raise(registries.back(), kTimes, left), [](const std::exception_ptr& e) {
      HEDDLE_CHECK(e == nullptr);
    });
  }
  until([&] { return left == 0; });
  EXPECT_EQ((*wait(registries[0]->get("counter")))->value, std::to_string(kClients * kTimes));
}

TEST_P(ContractTest, TellsEveryChangeInOrderFromWhereItIsAsked) {
  const Shared writer = open();
  const Shared reader = open();
  put(writer, "w/a", 0, "before");
  const auto from = wait(reader->list("w/"));
  ASSERT_TRUE(from);
  const Revision b = put(writer, "w/b", 0, "1");
  put(writer, "other", 0, "not told");
  const auto watch = follow(reader, "w/", from->revision);
  until([&] { return told.size() == 1; });
  const Revision b2 = put(writer, "w/b", b, "2");
  ASSERT_TRUE(wait(writer->remove_if("w/b", b2)));
  put(writer, "w/b", 0, "3");
  until([&] { return told.size() == 4; });
  EXPECT_THAT(told, ElementsAre("w/b=1", "w/b=2", "w/b-", "w/b=3"));
  EXPECT_EQ(watch->trouble(), "");
}

TEST_P(ContractTest, EndsAWatchInItsHandler) {
  const Shared registry = open();
  const Revision start = put(registry, "a", 0, "");
  int calls = 0;
  std::unique_ptr<Watch> watch = registry->watch("", start, [&](const Change&) {
    ++calls;
    watch.reset();
  });
  put(registry, "b", 0, "");
  put(registry, "c", 0, "");
  until([&] { return calls == 1; });
  const auto second = follow(registry, "", start);
  until([&] { return told.size() == 2; });
  EXPECT_EQ(calls, 1);
}

TEST_P(ContractTest, RemovesWhatNobodyPutsAgain) {
  const Shared owner = open();
  const Shared other = open();
  const Revision start = put(owner, "stays", 0, "x");
  const auto watch = follow(other, "", start);
  const Revision once = put(owner, "host", 0, "1", 1s);
  put(owner, "host", once, "2", 1s);
  until([&] { return told.size() == 3; });
  EXPECT_THAT(told, ElementsAre("host=1", "host=2", "host-"));
  EXPECT_FALSE(wait(owner->get("host"))->has_value());
  EXPECT_TRUE(wait(owner->get("stays"))->has_value());
}

TEST_P(ContractTest, KeepsWhatIsPutAgainAndThenForEver) {
  const Shared registry = open();
  Revision revision = put(registry, "host", 0, "0", 1s);
  const auto watch = follow(registry, "host", revision);
  put(registry, "clock", 0, "", 1s);  // Its end shows that a life has passed.
  const auto clock = wait(registry->get("clock"));
  bool over = false;
  const auto clock_watch = registry->watch("clock", (*clock)->revision, [&](const Change& change) {
    over = over || change.kind == Change::Kind::kRemoved;
  });
  asio::steady_timer timer(loop);
  while (!over) {
    revision = put(registry, "host", revision, "again", 1s);
    bool fired = false;
    timer.expires_after(50ms);
    timer.async_wait([&](const boost::system::error_code&) { fired = true; });
    until([&] { return fired; });
  }
  put(registry, "host", revision, "for ever");
  EXPECT_THAT(told, testing::Not(testing::Contains("host-")));
  EXPECT_TRUE(wait(registry->get("host"))->has_value());
}

TEST_P(ContractTest, RefusesKeysAndValuesThatCannotBe) {
  const Shared registry = open();
  for (const std::string key :
       {"", "A", "a/", "/a", "a//b", "-a", "a b", "a..b", "a.-b", "a/../b"}) {
    const auto put = wait(registry->put_if(key, 0, "x"));
    ASSERT_FALSE(put) << key;
    EXPECT_EQ(put.error().code, Code::kInvalidArgument);
    EXPECT_THAT(put.error().message, HasSubstr("key \"" + key + "\""));
    EXPECT_FALSE(wait(registry->get(key)));
    EXPECT_FALSE(wait(registry->remove_if(key, 1)));
  }
  EXPECT_FALSE(wait(registry->get(std::string(kKeyMax + 1, 'a'))));
  put(registry, std::string(kKeyMax, 'a'), 0, std::string(kValueMax, '\xff'));
  EXPECT_EQ((*wait(registry->get(std::string(kKeyMax, 'a'))))->value.size(), kValueMax);
  const auto put = wait(registry->put_if("b", 0, std::string(kValueMax + 1, 'x')));
  ASSERT_FALSE(put);
  EXPECT_THAT(put.error().message, HasSubstr("131073 bytes; at most 131072"));
}

TEST_P(ContractTest, DoesNotMindWhatIsNotOurs) {
  if (is_real()) {
    GTEST_SKIP() << "nothing strange is put into a real cluster";
  }
  const Shared registry = open();
  const Revision start = put(registry, "a", 0, "x");
  const auto watch = follow(registry, "", start);
  until([&] { return watch->trouble().empty(); });
  store->put_strange("Not_Ours", "x");
  if (GetParam() == "file") {  // Where nobody else has any business.
    const auto got = wait(registry->get("a"));
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kCorrupt);
    EXPECT_THAT(got.error().message, HasSubstr("records:3: "));
    return;
  }
  store->put_strange("big", std::string(kValueMax + 1, 'x'));
  put(registry, "b", 0, "y");
  until([&] { return !told.empty(); });
  EXPECT_THAT(told, ElementsAre("b=y"));
  EXPECT_EQ(wait(registry->list(""))->records.size(), 2U);
  const auto big = wait(registry->get("big"));
  ASSERT_FALSE(big);
  EXPECT_EQ(big.error().code, Code::kCorrupt) << big.error().message;
}

TEST_P(ContractTest, GoesOnWithAWatchWhenTheServerWasKilled) {
  if (!store->is_server()) {
    GTEST_SKIP() << "there is no server to kill";
  }
  const Shared registry = open();
  const Revision start = put(registry, "a", 0, "1");
  const auto watch = follow(registry, "", start);
  const Revision a = put(registry, "a", start, "2");
  until([&] { return told.size() == 1; });
  store->kill();
  until([&] { return !watch->trouble().empty(); });
  EXPECT_THAT(watch->trouble(), HasSubstr("127.0.0.1:"));
  store->restart();
  put(registry, "a", a, "3");
  until([&] { return told.size() == 2; });
  EXPECT_THAT(told, ElementsAre("a=2", "a=3"));
}

TEST_P(ContractTest, SeesThatAServerIsFrozenAndGoesOnWhenItIsThawed) {
  if (!store->is_server()) {
    GTEST_SKIP() << "there is no server to freeze";
  }
  const Shared registry = open({.patience = 600ms, .check = 50ms});
  const Revision start = put(registry, "a", 0, "1");
  const auto watch = follow(registry, "", start);
  until([&] { return watch->trouble().empty(); });
  store->signal(SIGSTOP);
  until([&] { return !watch->trouble().empty(); });
  const auto put_frozen = wait(registry->put_if("a", start, "2"));
  ASSERT_FALSE(put_frozen);
  EXPECT_EQ(put_frozen.error().code, Code::kDeadlineExceeded) << put_frozen.error().message;
  EXPECT_THAT(put_frozen.error().message, HasSubstr("127.0.0.1:"));
  store->signal(SIGCONT);
  until([&] { return watch->trouble().empty(); });
  // It may have been put all the same.
  Result<std::optional<Record>> found = wait(registry->get("a"));
  until([&] {
    found = wait(registry->get("a"));
    return found.has_value();
  });
  const bool was_put = (*found)->value == "2";
  const auto next = wait(registry->put_if("a", (*found)->revision, "3"));
  until([&] { return !told.empty() && told.back() == "a=3"; });
  EXPECT_TRUE(next || was_put);
  EXPECT_THAT(told, testing::Not(testing::Contains("lost")));
}

TEST_P(ContractTest, NoticesThatTheStoreWasRestoredFromASnapshot) {
  if (is_real()) {
    GTEST_SKIP() << "a real cluster is not restored";
  }
  const Shared registry = open();
  Revision a = put(registry, "a", 0, "1");
  store->save();
  for (int i = 0; i < 5; ++i) {
    a = put(registry, "a", a, "later");
  }
  const auto watch = follow(registry, "", a);
  until([&] { return watch->trouble().empty(); });
  store->restore();
  until([&] { return !told.empty(); });
  EXPECT_THAT(told, ElementsAre("lost"));
  EXPECT_FALSE(why.empty());
  const auto listing = wait(registry->list(""));
  ASSERT_TRUE(listing) << listing.error().message;
  EXPECT_EQ(listing->records.at(0).value, "1");
  told.clear();
  last = 0;
  const auto again = follow(registry, "", listing->revision);
  put(registry, "a", listing->records.at(0).revision, "anew");
  until([&] { return !told.empty(); });
  EXPECT_THAT(told, ElementsAre("a=anew"));
}

TEST_P(ContractTest, SaysThatItCannotTellFromSoLongAgo) {
  if (!store->is_server()) {
    GTEST_SKIP() << "there is no server that forgets";
  }
  const Shared registry = open();
  const Revision a = put(registry, "a", 0, "1");
  put(registry, "a", a, "2");
  store->forget();
  const auto watch = follow(registry, "", a - 1);
  until([&] { return !told.empty(); });
  EXPECT_THAT(told, ElementsAre("lost"));
  EXPECT_THAT(why, HasSubstr(registry->name()));
}

TEST_P(ContractTest, SaysWhichServerDoesNotAnswer) {
  if (!store->is_server()) {
    GTEST_SKIP() << "there is no server";
  }
  const Shared registry = open({.patience = 100ms});
  store->kill();
  const auto got = wait(registry->get("a"));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnavailable);
  EXPECT_THAT(got.error().message, HasSubstr("127.0.0.1:"));
  EXPECT_FALSE(wait(registry->put_if("a", 0, "x", 1s)));
  EXPECT_FALSE(wait(registry->list("")));
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         ContractTest,
                         testing::Values("file", "etcd", "kubernetes", "real_kubernetes"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace heddle::cluster
