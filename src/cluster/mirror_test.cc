#include "cluster/mirror.h"

#include <gmock/gmock.h>

#include "cluster/test_store.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;

struct MirrorTest : test::LoopTest {
  std::shared_ptr<Registry> open() {
    return *open_registry(loop.get_executor(), store.url(), {.patience = 10s});
  }
  void put(const std::string& key, const std::string& value) {
    const auto registry = open();
    const auto before = wait(registry->get(key));
    ASSERT_TRUE(wait(registry->put_if(key, *before ? (*before)->revision : 0, value)));
  }
  [[nodiscard]] std::string value(const std::string& key) const {
    const auto found = mirror->records().find(key);
    return found == mirror->records().end() ? "" : found->second.value;
  }
  void begin() {
    mirror.emplace(loop.get_executor(), open(), "hosts/", [this] { ++changes; });
    until([this] { return mirror->known(); });
  }
  test::FileStore store{};
  int changes = 0;
  std::optional<Mirror> mirror{};
};

TEST_F(MirrorTest, HasWhatIsThereAndWhatChanges) {
  put("hosts/a", "1");
  put("gateways/g", "other");
  begin();
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(mirror->records().size(), 1U);
  EXPECT_EQ(value("hosts/a"), "1");
  put("hosts/b", "2");
  until([this] { return value("hosts/b") == "2"; });
  put("hosts/a", "3");
  until([this] { return value("hosts/a") == "3"; });
  const auto registry = open();
  ASSERT_TRUE(
      wait(registry->remove_if("hosts/a", wait(registry->get("hosts/a"))->value().revision)));
  until([this] { return value("hosts/a").empty(); });
  EXPECT_EQ(changes, 4);
}

TEST_F(MirrorTest, OfNothingIsKnownToo) {
  begin();
  EXPECT_EQ(changes, 1);
  EXPECT_TRUE(mirror->records().empty());
}

TEST_F(MirrorTest, ThatLostTrackListsAgain) {
  put("hosts/a", "1");
  store.save();
  begin();
  put("hosts/b", "2");
  until([this] { return value("hosts/b") == "2"; });
  store.restore();
  until([this] { return value("hosts/b").empty(); });
  EXPECT_EQ(value("hosts/a"), "1");
  put("hosts/c", "3");
  until([this] { return value("hosts/c") == "3"; });
}

TEST_F(MirrorTest, MayEndWithinWhatItTells) {
  put("hosts/a", "1");
  bool told = false;
  mirror.emplace(loop.get_executor(), open(), "hosts/", [&] {
    told = true;
    mirror.reset();
  });
  until([&] { return told; });
  EXPECT_FALSE(mirror.has_value());
}

}  // namespace
}  // namespace heddle::cluster
