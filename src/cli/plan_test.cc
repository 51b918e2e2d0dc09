#include "cli/plan.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

#include <unistd.h>

namespace heddle::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

/// A folder with two kinds of servers, models and a trace of them.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    std::filesystem::create_directories(folder_);
    write("hardware.yaml",
          "hosts:\n"
          "  - {name: old, gpu: V100, gpus: 2, cache: 100GB, nic: 2GB/s, pcie: 12GB/s, "
          "platform: v100, price: 3}\n"
          "  - {count: 3, name: many, gpu: V100, gpus: 4, cache: 100GB, nic: 2GB/s, pcie: "
          "12GB/s, platform: v100, price: 7}\n");
    write("models.yaml",
          "models:\n  small-*: {shape: opt-2.7b, engine: graphs, ttft: 20s, tpot: 1s}\n"
          "  hasty: {shape: opt-2.7b, engine: graphs, ttft: 1ms, tpot: 1s}\n"
          "  large: {shape: llama2-70b, engine: graphs, ttft: 60s, tpot: 1s}\n");
    std::string trace = "arrival_s,model,input_tokens,output_tokens\n";
    for (int i = 0; i < 240; ++i) {
      trace += std::to_string(i) + ",small-" + std::to_string(i % 12) + ",900,400\n";
    }
    write("trace.csv", trace);
  }
  ~PlanTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  [[nodiscard]] PlanOptions options(const std::string& trace = "trace.csv") const {
    return {.replay = {.trace = {.file = (folder_ / trace).string()},
                       .cluster = (folder_ / "hardware.yaml").string(),
                       .models = (folder_ / "models.yaml").string(),
                       .perf = std::string(places::kSources) + "/data/perf"},
            .target = 90,
            .most = 16,
            .html = (folder_ / "out.html").string()};
  }
  /// What it prints, and its status.
  [[nodiscard]] static std::pair<std::string, int> said(const PlanOptions& options) {
    CaptureStdout();
    CaptureStderr();
    const int status = plan(options);
    const std::string errors = GetCapturedStderr();
    return {GetCapturedStdout() + errors, status};
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("plan-" + std::to_string(::getpid()));
};

TEST_F(PlanTest, SaysHowManyOfEachKindAndWhichIsTheCheapest) {
  const auto [text, status] = said(options());
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text,
              AllOf(HasSubstr("240 requests of 12 models"),
                    HasSubstr("old\n"),
                    HasSubstr("many\n"),
                    HasSubstr("cost: "),
                    HasSubstr("best: ")));
  std::stringstream page;
  page << std::ifstream(folder_ / "out.html").rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("<svg"));
}

TEST_F(PlanTest, ObjectivesThatNoHardwareMeets) {
  write("hasty.csv", "arrival_s,model,input_tokens,output_tokens\n1,hasty,900,9\n2,hasty,900,9\n");
  const auto [text, status] = said(options("hasty.csv"));
  EXPECT_EQ(status, kNeverEnoughStatus);
  EXPECT_THAT(text,
              AllOf(HasSubstr("no kind of server is enough"),
                    HasSubstr("hasty: 0.00 % in time; its first token takes"),
                    HasSubstr("and is to take 0.001 s")));
}

TEST_F(PlanTest, ModelsThatDoNotFit) {
  write("large.csv", "arrival_s,model,input_tokens,output_tokens\n1,large,9,9\n");
  const auto [text, status] = said(options("large.csv"));
  EXPECT_EQ(status, kNeverEnoughStatus);
  EXPECT_THAT(text, HasSubstr("fits no such server: large (138.0 GB of weights on 1 GPU"))
      << "which, and why";
  write("both.csv", "arrival_s,model,input_tokens,output_tokens\n1,small-1,9,9\n2,large,9,9\n");
  PlanOptions half = options("both.csv");
  half.target = 50;
  EXPECT_THAT(said(half).first, HasSubstr("fits no such server, and is not served: large"));
}

TEST_F(PlanTest, BadInput) {
  write("empty.csv", "arrival_s,model,input_tokens,output_tokens\n");
  const auto [empty, failed] = said(options("empty.csv"));
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(empty, HasSubstr("has no request that can be replayed"));
  PlanOptions late = options();
  late.replay.warmup = std::chrono::hours(1);
  EXPECT_THAT(said(late).first, HasSubstr("--warmup: the last request comes at 239 s"));
  PlanOptions unknown = options();
  unknown.policy = "none";
  EXPECT_EQ(said(unknown).second, 1);
  unknown.policy = "heddle:stages=1";
  EXPECT_EQ(said(unknown).second, 0) << "flags are taken";
}

TEST_F(PlanTest, ExternalEnginesArePlayedByThePolicyToo) {
  write("models.yaml",
        "models:\n  small-*: {shape: opt-2.7b, engine: graphs, external: true, ttft: 20s, tpot: "
        "1s}\n");
  PlanOptions external = options();
  external.policy = "heddle";
  const auto [text, status] = said(external);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(text, HasSubstr("240 requests of 12 models"));
  EXPECT_THAT(text, HasSubstr("policy heddle"));
}

}  // namespace
}  // namespace heddle::cli
