#include "cluster/kubernetes_wire.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::cluster::kubernetes {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string lease(const std::string& version, const std::string& annotations) {
  return R"({"kind":"Lease","metadata":{"name":"heddle.a","resourceVersion":")" + version +
         R"(","annotations":{)" + annotations + R"(}},"spec":{}})";
}
const std::string kOurs = R"("heddle/value":"eA==")";

TEST(KubernetesWireTest, ReadsWhatItWrites) {
  const Object object{.name = "heddle.a", .value = std::string("\0x", 2), .life = 1500ms};
  const std::string fresh = write_object(object, "blue", 0);
  EXPECT_THAT(fresh, HasSubstr(R"("labels":{"heddle/registry":"blue"})"));
  EXPECT_THAT(fresh, testing::Not(HasSubstr("resourceVersion")));
  const auto read = parse_object(write_object(object, "blue", 9));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, object.name);
  EXPECT_EQ(read->value, object.value);
  EXPECT_EQ(read->life, object.life);
  EXPECT_EQ(read->revision, 9U);
}

TEST(KubernetesWireTest, PassesOverLeasesOfOthersInAList) {
  const auto page =
      parse_page(R"({"metadata":{"resourceVersion":"7","continue":"more"},"items":[)" +
                 lease("5", kOurs) + "," + lease("6", "") + "]}");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->revision, 7U);
  EXPECT_EQ(page->next, "more");
}

TEST(KubernetesWireTest, ReadsEvents) {
  const auto event = [](const std::string& type, const std::string& object) {
    return parse_event(R"({"type":")" + type + R"(","object":)" + object + "}");
  };
  EXPECT_EQ(event("ADDED", lease("5", kOurs))->kind, Event::Kind::kPut);
  EXPECT_TRUE(event("MODIFIED", lease("5", kOurs))->is_record);
  EXPECT_FALSE(event("MODIFIED", lease("5", ""))->is_record);
  EXPECT_EQ(event("DELETED", lease("5", kOurs))->kind, Event::Kind::kRemoved);
  const auto bookmark = event("BOOKMARK", R"({"metadata":{"resourceVersion":"12"}})");
  EXPECT_EQ(bookmark->kind, Event::Kind::kBookmark);
  EXPECT_EQ(bookmark->object.revision, 12U);
  const auto gone = event("ERROR", R"({"kind":"Status","code":410,"message":"too old"})");
  EXPECT_EQ(gone->kind, Event::Kind::kError);
  EXPECT_EQ(gone->code, 410);
  EXPECT_EQ(gone->message, "too old");
  EXPECT_FALSE(event("SHOUTED", lease("5", kOurs)));
  EXPECT_FALSE(parse_event(R"({"type":"ADDED"})"));
}

TEST(KubernetesWireTest, BelievesNothing) {
  for (const std::string& body : {lease("", kOurs),
                                  lease("0", kOurs),
                                  lease("1x", kOurs),
                                  lease("99999999999999999999", kOurs),
                                  lease("5", ""),
                                  lease("5", R"("heddle/value":"!")"),
                                  lease("5", R"("heddle/value":7)"),
                                  lease("5", kOurs + R"(,"heddle/life-ms":"-1")"),
                                  std::string("[]"),
                                  std::string("")}) {
    const auto object = parse_object(body);
    ASSERT_FALSE(object) << body;
    EXPECT_EQ(object.error().code, Code::kCorrupt);
  }
  EXPECT_EQ(message_of(R"({"message":"no"})"), "no");
  EXPECT_EQ(message_of("<html>"), "<html>");
}

TEST(KubernetesWireTest, NamesObjectsAfterKeys) {
  EXPECT_EQ(name_of("heddle", "leader"), "heddle.leader");
  EXPECT_EQ(name_of("heddle", "hosts/gpu-1.lab"), "heddle.hosts.0.gpu-1.lab");
  EXPECT_EQ(name_of("heddle", "hosts/10.0.0.1"), "heddle.hosts.0.10.00.00.1");
  EXPECT_EQ(key_of("heddle", "heddle.hosts.0.10.00.00.1"), "hosts/10.0.0.1");
  for (const char* name : {"heddle",
                           "heddle.",
                           "heddle.0",
                           "heddle.a.0",
                           "heddle.0.a",
                           "heddle.a.0.0.b",
                           "heddle.a..b",
                           "heddle.A",
                           "other.a"}) {
    EXPECT_EQ(key_of("heddle", name), std::nullopt) << name;
  }
}

TEST(KubernetesWireTest, NamesNoTwoKeysAlike) {
  const std::uint64_t seed = 11;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  std::set<std::string> keys;
  std::set<std::string> names;
  for (int i = 0; i < 20'000; ++i) {
    std::string key;
    for (std::uint64_t left = 1 + rng.below(8); left > 0; --left) {
      key += "0a./-"[rng.below(5)];
    }
    if (check_key(key)) {
      keys.insert(key);
      names.insert(name_of("g", key));
      ASSERT_EQ(key_of("g", name_of("g", key)), key);
    }
  }
  EXPECT_GT(keys.size(), 500U);
  EXPECT_EQ(names.size(), keys.size());
}

}  // namespace
}  // namespace heddle::cluster::kubernetes
