#include "bench/results.h"

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

using namespace std::chrono_literals;

Row row(Duration ttft, Duration tpot, std::int64_t tokens) {
  Row made{.due = 1s, .begun = 1s + 2ms, .prompt_tokens = 5, .completion_tokens = tokens};
  made.first = made.due + ttft;
  made.last = made.first + tpot * (tokens - 1);
  made.ended = made.last + 1ms;
  return made;
}

TEST(Row, CountsFromWhenItWasDue) {
  const Row one = row(100ms, 10ms, 5);
  EXPECT_EQ(one.ttft(), 100ms);
  EXPECT_EQ(one.tpot(), 10ms);
  EXPECT_FALSE(row(100ms, 10ms, 1).tpot());
  const Row nothing{.due = 1s, .ended = 3s};
  EXPECT_EQ(nothing.ttft(), 2s);
}

TEST(Slo, IsReadAndHeldAgainstRequests) {
  const Slo both = parse_slo("ttft=200ms,tpot=50ms").value();
  EXPECT_TRUE(both.met_by(row(200ms, 50ms, 3)));
  EXPECT_FALSE(both.met_by(row(201ms, 50ms, 3)));
  EXPECT_FALSE(both.met_by(row(200ms, 51ms, 3)));
  EXPECT_TRUE(both.met_by(row(200ms, 51ms, 1))) << "one token has no pace";
  Row failed = row(1ms, 1ms, 3);
  failed.error = "no";
  EXPECT_FALSE(both.met_by(failed));
  EXPECT_TRUE(parse_slo("tpot=1s").value().met_by(row(9s, 1s, 2)));
  for (const char* text : {"x=1s", "ttft", "ttft=", "ttft=soon", "ttft=1s,ttft=2s"}) {
    EXPECT_FALSE(parse_slo(text)) << text;
  }
}

TEST(Results, AreCountedForEachModelAndForAll) {
  Results results({"a", "b"}, parse_slo("ttft=1s").value());
  results.add(row(500ms, 10ms, 11), {10ms, 12ms});
  Row slow = row(2s, 20ms, 3);
  slow.model = 1;
  results.add(slow, {});
  Row failed{.model = 1, .due = 2s, .begun = 2s, .ended = 9s, .error = "status 500: no"};
  results.add(failed, {});
  EXPECT_EQ(results.all().requests, 3);
  EXPECT_EQ(results.all().failed, 1);
  EXPECT_EQ(results.all().good, 1);
  EXPECT_EQ(results.all().completion_tokens, 14);
  EXPECT_EQ(results.models()[0].good, 1);
  EXPECT_EQ(results.models()[1].good, 0);
  EXPECT_EQ(results.models()[1].ttft.count(), 1U) << "failures have no latency";
  EXPECT_NEAR(results.models()[0].itl.at(1), 0.012, 1e-6);
  EXPECT_NEAR(results.lateness().at(0.9), 0.002, 1e-6);
  EXPECT_EQ(results.errors().at("status 500: no"), 1);
  EXPECT_EQ(results.span(), 9s);
  EXPECT_DOUBLE_EQ(results.per_second(18), 2);
}

TEST(Results, KeepOnlySoManyKindsOfErrors) {
  Results results({"a"}, {});
  for (int i = 0; i < 100; ++i) {
    results.add({.ended = 1s, .error = "error " + std::to_string(i)}, {});
  }
  EXPECT_EQ(results.errors().size(), 21U);
  EXPECT_EQ(results.errors().at("(others)"), 80);
}

}  // namespace
}  // namespace heddle::bench
