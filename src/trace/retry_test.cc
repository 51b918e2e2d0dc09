#include "trace/retry.h"

#include <gtest/gtest.h>

namespace heddle::trace {
namespace {

using namespace std::chrono_literals;

TEST(Retry, IsForWhatACollectorMayTakeLater) {
  for (const int status : {200, 202}) {
    EXPECT_EQ(judge(http::Reply{.status = status}), Verdict::kTaken) << status;
  }
  for (const int status : {429, 502, 503, 504}) {
    EXPECT_EQ(judge(http::Reply{.status = status}), Verdict::kAgain) << status;
  }
  for (const int status : {301, 400, 401, 404, 413, 500, 501}) {
    EXPECT_EQ(judge(http::Reply{.status = status}), Verdict::kRefused) << status;
  }
  EXPECT_EQ(judge(Error{Code::kUnavailable, "nobody listens"}), Verdict::kAgain);
  EXPECT_EQ(judge(Error{Code::kDeadlineExceeded, "no answer"}), Verdict::kAgain);
  EXPECT_EQ(judge(Error{Code::kFailedPrecondition, "its certificate"}), Verdict::kRefused);
}

TEST(Retry, AfterIsSecondsOrADate) {
  EXPECT_EQ(parse_retry_after("7", 0), 7s);
  EXPECT_EQ(parse_retry_after("0", 0), 0s);
  EXPECT_EQ(parse_retry_after("99999999", 0), kLongestWait);
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50), 10s);
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 70), 0s) << "it has passed";
  for (const char* neither : {"", "soon", "7s", "1.5", "Thu, 01 Jan 1970 00:01:00 GMT+1"}) {
    EXPECT_FALSE(parse_retry_after(neither, 0)) << neither;
  }
}

TEST(Retry, WaitsTwiceAsLongEachTimeUnlessItIsToldHowLong) {
  const std::uint64_t seed = 5;
  Rng rng(seed);
  Duration most = 1s;
  for (int tries = 1; tries < 5; ++tries, most *= 2) {
    const Duration wait = wait_before_retry(tries, 1s, std::nullopt, rng);
    EXPECT_GE(wait, most / 2) << "seed " << seed;
    EXPECT_LE(wait, most);
  }
  EXPECT_LE(wait_before_retry(1000, 1s, std::nullopt, rng), 30s);
  EXPECT_EQ(wait_before_retry(1, 1s, 20s, rng), 20s);
}

}  // namespace
}  // namespace heddle::trace
