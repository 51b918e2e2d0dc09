#include "agent/fetch_progress.h"

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

using namespace std::chrono_literals;

TEST(FetchProgress, SaysHowMuchOfAModelIsThereAndHowFastItComes) {
  FetchProgress progress("adder", "s3://models/adder", "s3");
  const std::vector<fetch::Job> jobs{{.object = {.name = "a", .bytes = 100}},
                                     {.object = {.name = "b", .bytes = 900}}};
  progress.begins(jobs, {});
  progress.moved(0, 100);  // Which was there.
  progress.moved(1, 300);
  progress.took(100, Instant{10s});
  progress.took(200, Instant{10s + 600ms});
  const core::FetchStatus status = progress.status(Instant{11s});
  EXPECT_EQ(status.model, "adder");
  EXPECT_EQ(status.from, "s3://models/adder");
  EXPECT_EQ(status.kind, "s3");
  EXPECT_TRUE(status.active);
  EXPECT_EQ(status.bytes, 400U);
  EXPECT_EQ(status.total_bytes, 1000U);
  EXPECT_EQ(status.fetched_bytes, 300U);
  EXPECT_DOUBLE_EQ(status.bytes_per_second, 500);
  EXPECT_DOUBLE_EQ(progress.status(Instant{20s}).bytes_per_second, 0) << "nothing comes";
}

TEST(FetchProgress, SaysWhoGivesTheModel) {
  FetchProgress progress("adder", "s3://models/adder", "s3");
  EXPECT_EQ(progress.status(Instant{1s}).from, "s3://models/adder");
  progress.gave("h2", 100);
  progress.took(100, Instant{1s});
  EXPECT_EQ(progress.status(Instant{1s}).from, "h2");
  EXPECT_EQ(progress.status(Instant{1s}).peer_bytes, 100U);
  progress.gave("h3", 100);
  progress.took(100, Instant{1s});
  EXPECT_EQ(progress.status(Instant{1s}).from, "h2 and h3");
  progress.took(50, Instant{1s});
  EXPECT_EQ(progress.status(Instant{1s}).from, "h2 and h3 and s3://models/adder");
  EXPECT_EQ(progress.status(Instant{1s}).peer_bytes, 200U);
  EXPECT_EQ(progress.status(Instant{1s}).fetched_bytes, 250U);
}

}  // namespace
}  // namespace heddle::agent
