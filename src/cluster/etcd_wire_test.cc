#include "cluster/etcd_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cluster::etcd {
namespace {

using testing::HasSubstr;

// As etcd 3.4.23 wrote them.
constexpr std::string_view kHeader =
    R"("header":{"cluster_id":"14841639068965178418","member_id":"1",)"
    R"("revision":"9","raft_term":"2"})";
constexpr std::string_view kRecord =
    R"({"key":"aGVkZGxlL2E=","create_revision":"2","mod_revision":"7",)"
    R"("version":"1","value":"eA=="})";

std::string with_header(std::string_view rest) {
  return "{" + std::string(kHeader) + std::string(rest) + "}";
}

TEST(EtcdWireTest, ReadsARange) {
  const auto range =
      parse_range(with_header(R"(,"kvs":[)" + std::string(kRecord) + R"(],"more":true)"));
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(range->header.cluster, "14841639068965178418");
  EXPECT_EQ(range->header.revision, 9U);
  EXPECT_EQ(range->records, (std::vector<Record>{{"heddle/a", "x", 7}}));
  EXPECT_TRUE(range->more);
  EXPECT_TRUE(parse_range(with_header(""))->records.empty());
}

TEST(EtcdWireTest, ReadsATransaction) {
  const auto done =
      parse_txn(with_header(R"(,"succeeded":true,"responses":[{"response_put":{}}])"));
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->succeeded);
  const auto refused = parse_txn(
      with_header(R"(,"responses":[{"response_range":{"kvs":[)" + std::string(kRecord) + "]}}]"));
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->succeeded);
  EXPECT_EQ(refused->present, (Record{"heddle/a", "x", 7}));
}

TEST(EtcdWireTest, ReadsLeases) {
  EXPECT_EQ(parse_lease(with_header(R"(,"ID":"5","TTL":"2")"))->id, "5");
  EXPECT_FALSE(parse_lease(with_header(R"(,"ID":"5")")));
  EXPECT_EQ(parse_keep_alive(R"({"result":{"ID":"5","TTL":"2"}})"
                             "\n")
                ->seconds,
            2);
  EXPECT_EQ(parse_keep_alive(R"({"result":{"ID":"5"}})")->seconds, 0);
  EXPECT_FALSE(parse_keep_alive("{}"));
}

TEST(EtcdWireTest, ReadsLinesOfAWatch) {
  const auto line = parse_watch_line(R"({"result":)" +
                                     with_header(R"(,"events":[{"kv":)" + std::string(kRecord) +
                                                 R"(},{"type":"DELETE","kv":{"key":"eA==",)" +
                                                 R"("mod_revision":"8"}}],"fragment":true)") +
                                     "}");
  ASSERT_TRUE(line) << line.error().message;
  ASSERT_EQ(line->changes.size(), 2U);
  EXPECT_EQ(line->changes[0].kind, Change::Kind::kPut);
  EXPECT_EQ(line->changes[1].kind, Change::Kind::kRemoved);
  EXPECT_EQ(line->changes[1].record, (Record{"x", "", 8}));
  EXPECT_TRUE(line->fragment);
  const auto end = parse_watch_line(
      R"({"result":)" +
      with_header(R"(,"canceled":true,"compact_revision":"4","cancel_reason":"x")") + "}");
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->canceled);
  EXPECT_EQ(end->compacted, 4U);
  EXPECT_EQ(end->reason, "x");
}

TEST(EtcdWireTest, TellsErrorsFromNonsense) {
  const auto error = parse_txn(R"({"error":"etcdserver: no leader","code":14})");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, Code::kUnavailable);
  EXPECT_THAT(error.error().message, HasSubstr("no leader"));
  const auto ended = parse_watch_line(R"({"error":{"grpc_code":14,"message":"closing"}})");
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
  const std::string bad_records[] = {R"({})",
                                     R"({"key":"!","mod_revision":"1"})",
                                     R"({"key":"eA=="})",
                                     R"({"key":"eA==","mod_revision":"-1"})",
                                     R"({"key":"eA==","mod_revision":"18446744073709551615"})",
                                     R"({"key":"eA==","mod_revision":"1x"})",
                                     R"({"key":"eA==","mod_revision":{}})",
                                     R"({"key":"eA==","mod_revision":"1","value":7.5})"};
  for (const std::string& each : bad_records) {
    const auto range = parse_range(with_header(R"(,"kvs":[)" + each + "]"));
    ASSERT_FALSE(range) << each;
    EXPECT_EQ(range.error().code, Code::kCorrupt);
  }
  for (const char* body : {"", "[]", "{}", R"({"header":{}})", R"({"header":7})", "<html>"}) {
    EXPECT_EQ(parse_range(body).error().code, Code::kCorrupt) << body;
    EXPECT_EQ(parse_watch_line(body).error().code, Code::kCorrupt) << body;
  }
  EXPECT_FALSE(parse_watch_line(
      R"({"result":)" +
      with_header(R"(,"events":[{"type":"MOVE","kv":)" + std::string(kRecord) + "}]") + "}"));
}

TEST(EtcdWireTest, WritesWhatEtcdTakes) {
  EXPECT_EQ(range_body({.first = "x"}), R"({"key":"eA=="})");
  EXPECT_EQ(range_body({.first = "x", .end = "y", .limit = 1, .at = 3, .newest_first = true}),
            R"({"key":"eA==","range_end":"eQ==","limit":"1","revision":"3",)"
            R"("sort_target":"MOD","sort_order":"DESCEND"})");
  EXPECT_EQ(put_body("x", 3, "y", "5"),
            R"({"compare":[{"target":"MOD","result":"EQUAL","key":"eA==","mod_revision":"3"}],)"
            R"("success":[{"request_put":{"key":"eA==","value":"eQ==","lease":"5"}}],)"
            R"("failure":[{"request_range":{"key":"eA=="}}]})");
  EXPECT_EQ(end_of("a/"), "a0");
}

}  // namespace
}  // namespace heddle::cluster::etcd
