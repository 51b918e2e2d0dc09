#include "cli/simulate.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

#include <unistd.h>

namespace heddle::cli {
namespace {

TEST(SplitPolicies, KeepsFlagsWithTheirPolicy) {
  EXPECT_EQ(split_policies("a,b:x=1,y=2,c"), (std::vector<std::string>{"a", "b:x=1,y=2", "c"}));
  EXPECT_EQ(split_policies("heddle"), (std::vector<std::string>{"heddle"}));
}

TEST(ParseSweep, GoesFromTheFirstRateToTheLast) {
  EXPECT_EQ(parse_sweep("rps=5..15:2.5").value(), (std::vector<double>{5, 7.5, 10, 12.5, 15}));
  EXPECT_EQ(parse_sweep("rps=5..14:5").value(), (std::vector<double>{5, 10}));
  EXPECT_EQ(parse_sweep("rps=0.5..1").value().size(), 6U);
}

TEST(ParseSweep, SaysWhatItWants) {
  for (const char* text : {"",
                           "5..30",
                           "rps=5",
                           "rps=5..",
                           "rps=30..5",
                           "rps=5..30:0",
                           "rps=5..30:x",
                           "rps=-5..30",
                           "rps=5..30 ",
                           "rps=1..1e9:1"}) {
    const auto parsed = parse_sweep(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("rps=5..30"), std::string::npos);
  }
}

/// A folder with a cluster, models and a trace of the 70 GB model and the 16 GB one.
class SimulateTest : public testing::Test {
 protected:
  SimulateTest() {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "cluster.yaml")
        << "hosts:\n  - {count: 2, gpu: V100, gpus: 2, cache: 100GB, nic: 2GB/s, pcie: 12GB/s, "
           "platform: v100}\n";
    std::ofstream(folder_ / "models.yaml")
        << "models:\n"
           "  small: {shape: opt-2.7b, engine: graphs, ttft: 60s, tpot: 1s}\n"
           "  large: {shape: llama2-70b, engine: graphs, ttft: 60s, tpot: 1s}\n";
    std::ofstream(folder_ / "trace.csv")
        << "arrival_s,model,input_tokens,output_tokens\n1,small,9,9\n2,large,9,9\n9,small,9,9\n";
  }
  ~SimulateTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] SimulateOptions options(const std::string& policy) const {
    return {.replay = {.trace = {.file = (folder_ / "trace.csv").string()},
                       .cluster = (folder_ / "cluster.yaml").string(),
                       .models = (folder_ / "models.yaml").string(),
                       .perf = std::string(places::kSources) + "/data/perf"},
            .policies = {policy},
            .csv = (folder_ / "out.csv").string()};
  }
  [[nodiscard]] std::string rows() const {
    std::stringstream text;
    text << std::ifstream(folder_ / "out.csv").rdbuf();
    return text.str();
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("simulate-" + std::to_string(::getpid()));
};

TEST_F(SimulateTest, WhoIsNotServedIsNamedAndTheStatusSaysSo) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(simulate(options("serverlessllm")), kStuckStatus);
  const std::string told = testing::internal::GetCapturedStderr();
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_THAT(told, testing::HasSubstr("policy serverlessllm: at "));
  EXPECT_THAT(told,
              testing::HasSubstr("large: 1 requests unserved, request 1 the first: its weights"));
  EXPECT_THAT(table, testing::HasSubstr("refused / unserved"));
  EXPECT_THAT(table, testing::HasSubstr("0 / 1"));
  EXPECT_THAT(rows(), testing::HasSubstr(",unserved\n"));
  EXPECT_THAT(rows(), testing::Not(testing::HasSubstr("refused")));
}

TEST_F(SimulateTest, WhatIsRefusedIsAnAnswer) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(simulate(options("dedicated")), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("1 / 0"));
  EXPECT_THAT(rows(), testing::HasSubstr(",refused\n"));
}

// The first request comes to an instance that loads from the store, or from host memory.
TEST_F(SimulateTest, TheBeginningAndTheWarmUpAreTheUsers) {
  const auto first_token = [&](const std::string& initial) {
    SimulateOptions run = options("dedicated");
    run.replay.initial = initial;
    testing::internal::CaptureStdout();
    EXPECT_EQ(simulate(run), 0);
    testing::internal::GetCapturedStdout();
    std::string row = rows();
    row = row.substr(row.find("\n0,small,1.000000,9,9,") + 22);
    return std::stod(row);
  };
  EXPECT_GT(first_token("empty"), first_token("warm") + 1);

  SimulateOptions late = options("dedicated");
  late.replay.warmup = std::chrono::seconds(5);
  testing::internal::CaptureStdout();
  EXPECT_EQ(simulate(late), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("0 / 0"));
  const std::string text = rows();
  late.replay.warmup = std::chrono::seconds(10);
  testing::internal::CaptureStderr();
  EXPECT_EQ(simulate(late), 1) << "no request comes after that";
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--warmup"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << "the head and one request";
}

}  // namespace
}  // namespace heddle::cli
