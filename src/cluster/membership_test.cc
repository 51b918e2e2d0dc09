#include "cluster/membership.h"

#include <set>

#include <gmock/gmock.h>

#include "cluster/test_store.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct MembershipTest : test::LoopTest {
  std::shared_ptr<Registry> open() {
    return *open_registry(loop.get_executor(), store.url(), {.patience = 10s});
  }
  Result<std::unique_ptr<Member>> join(const std::string& name,
                                       Role role = Role::kHost,
                                       Duration life = 300ms) {
    return wait(Member::join(loop.get_executor(),
                             open(),
                             {.role = role, .name = name, .address = name + ":1", .life = life},
                             [this](std::string_view why) { gone = why; }));
  }
  test::FileStore store{};
  std::string gone{};
};

TEST_F(MembershipTest, GivesEachNameANumberForEverAndEachLifeAGreaterOne) {
  auto a = join("a");
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ((*a)->identity(), (Identity{.id = 1, .incarnation = 1}));
  auto b = join("b");
  ASSERT_TRUE(b);
  EXPECT_EQ((*b)->identity(), (Identity{.id = 2, .incarnation = 1}));
  ASSERT_TRUE(wait((*a)->leave()));
  auto again = join("a");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->identity(), (Identity{.id = 1, .incarnation = 2}));
  auto gateway = join("a", Role::kGateway);
  ASSERT_TRUE(gateway) << "gateways are counted for themselves";
  EXPECT_EQ((*gateway)->identity(), (Identity{.id = 1, .incarnation = 1}));
}

TEST_F(MembershipTest, RefusesASecondProcessOfANameWhileTheFirstLives) {
  auto first = join("a");
  ASSERT_TRUE(first);
  const auto second = join("a");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(second.error().message, HasSubstr("a host called \"a\" is running at a:1"));
  EXPECT_THAT(second.error().message, HasSubstr("hosts/a"));
  first->reset();  // As one that dies; its record goes by itself.
  const auto registry = open();
  until([&] { return !wait(registry->get("hosts/a"))->has_value(); });
  auto third = join("a");
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_EQ((*third)->identity().incarnation, 2U);
}

TEST_F(MembershipTest, KeepsItsRecordAsLongAsItLives) {
  auto member = join("a");
  ASSERT_TRUE(member);
  const auto registry = open();
  const auto start = wait(registry->list("hosts/"));
  int puts = 0;
  const auto watch = registry->watch("hosts/", start->revision, [&](const Change& change) {
    EXPECT_EQ(change.kind, Change::Kind::kPut);
    puts += 1;
  });
  until([&] { return puts == 8; });
  const auto record = parse_member_record(start->records.at(0).value);
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->address, "a:1");
  EXPECT_EQ(record->identity, (*member)->identity());
  EXPECT_EQ(gone, "");
}

TEST_F(MembershipTest, PutsItsRecordAgainWhereItWasRemovedAndYieldsWhereItIsAnothers) {
  auto member = join("a");
  ASSERT_TRUE(member);
  const auto registry = open();
  auto found = wait(registry->get("hosts/a"));
  (void)wait(registry->remove_if("hosts/a", (*found)->revision));
  until([&] {
    found = wait(registry->get("hosts/a"));
    return found->has_value();
  });
  const std::string thief =
      write_member_record({.address = "b:1", .identity = {9, 9}, .holder = 77});
  until([&] {
    found = wait(registry->get("hosts/a"));
    return wait(registry->put_if("hosts/a", *found ? (*found)->revision : 0, thief)).has_value();
  });
  until([&] { return !gone.empty(); });
  EXPECT_THAT(gone, HasSubstr("is running at b:1"));
  ASSERT_TRUE(wait((*member)->leave()));
  EXPECT_EQ((*wait(registry->get("hosts/a")))->value, thief) << "it is not its own to remove";
}

struct Starts {
  int left = 0;
  std::set<std::uint16_t> ids{};
  std::vector<std::unique_ptr<Member>> members{};
};

boost::asio::awaitable<void> begin(boost::asio::any_io_executor executor,
                                   std::shared_ptr<Registry> registry,
                                   MemberOptions options,
                                   Starts& starts) {
  auto member = co_await Member::join(executor, registry, options, nullptr);
  --starts.left;
  if (member) {
    starts.ids.insert((*member)->identity().id);
    starts.members.push_back(std::move(*member));
  }
}

TEST_F(MembershipTest, GivesNoNumberTwiceToManyThatStartAtOnce) {
  test::KubernetesStore server;  // Whose answers interleave.
  server.restart();
  constexpr int kNames = 8;
  Starts starts{.left = 2 * kNames};
  for (int i = 0; i < 2 * kNames; ++i) {
    auto registry = *open_registry(loop.get_executor(), server.url(), {.patience = 30s});
    const MemberOptions options{.name = "h" + std::to_string(i % kNames), .life = 1h};
    boost::asio::co_spawn(loop,
                          begin(loop.get_executor(), registry, options, starts),
                          [](const std::exception_ptr& e) { HEDDLE_CHECK(e == nullptr); });
  }
  until([&] { return starts.left == 0; });
  EXPECT_EQ(starts.members.size(), kNames) << "one process of each name";
  EXPECT_EQ(starts.ids.size(), kNames);
}

TEST_F(MembershipTest, SaysWhatIsWrong) {
  EXPECT_THAT(join("a/b").error().message, HasSubstr("one word"));
  EXPECT_THAT(join("A").error().message, HasSubstr("key \"hosts/A\""));
  const auto registry = open();
  ASSERT_TRUE(wait(registry->put_if("ids/last-host", 0, R"({"last":65535})")));
  const auto full = join("late");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("all 65535 ids of hosts are given"));
  ASSERT_TRUE(wait(registry->put_if("ids/host/odd", 0, "{}")));
  const auto odd = join("odd");
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::kCorrupt);
  EXPECT_THAT(odd.error().message, HasSubstr("record \"ids/host/odd\""));
  for (const char* text :
       {"", "{}", R"({"id":1,"incarnation":1})", R"({"id":0,"incarnation":1,"holder":1})"}) {
    EXPECT_FALSE(parse_member_record(text)) << text;
  }
}

}  // namespace
}  // namespace heddle::cluster
