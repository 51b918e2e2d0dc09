#include "bench/run.h"

#include <csignal>

#include <gtest/gtest.h>

#include "bench/endpoint.h"
#include "bench/test_endpoint.h"

namespace heddle::bench {
namespace {

using namespace std::chrono_literals;

class RunTest : public testing::Test {
 protected:
  RunOptions options_for(std::uint16_t port) const {
    return {.endpoint = parse_endpoint("127.0.0.1:" + std::to_string(port)).value(),
            .models = {"a", "b"},
            .requests = 40,
            .patience = 10s};
  }
  Result<Results> run(const RunOptions& options, double rate) {
    const auto shots = load(rate);
    return bench::run(options, *shots, [this](const Progress& progress) { shown = progress; });
  }
  /// Tokens in the prompts of 40 requests.
  static std::int64_t wanted(double rate) {
    const auto shots = load(rate);
    std::int64_t tokens = 0;
    Shot shot;
    for (int i = 0; i < 40 && shots->next(shot); ++i) {
      tokens += shot.input_tokens;
    }
    return tokens;
  }
  static std::unique_ptr<ShotSource> load(double rate) {
    return draw_load(
        {.weights = {1, 1}, .input = {10, 50}, .output = {5, 5}, .rate = rate, .seed = 3});
  }
  Progress shown{};
};

TEST_F(RunTest, AClosedLoopKeepsSoManyRunning) {
  TestEndpoint endpoint({.pace = 1ms, .tokens = 5});
  RunOptions options = options_for(endpoint.port());
  options.concurrency = 4;
  const Result<Results> results = run(options, 0);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().requests, 40);
  EXPECT_EQ(results->all().failed, 0);
  EXPECT_EQ(endpoint.streams(), 40);
  EXPECT_EQ(endpoint.most_at_once(), 4);
  EXPECT_LE(endpoint.connections(), 4) << "connections are used again";
  EXPECT_EQ(results->all().completion_tokens, 200);
  EXPECT_EQ(results->all().prompt_tokens, 360);
  EXPECT_EQ(endpoint.samples(), 4) << "two for each model";
  EXPECT_EQ(results->all().itl.count(), 160U);
  EXPECT_GE(results->all().ttft.at(0), 0.001);
  EXPECT_GT(results->models()[0].requests, 5);
  EXPECT_GT(results->models()[1].requests, 5);
}

TEST_F(RunTest, AnOpenLoopSendsWhenRequestsAreDue) {
  TestEndpoint endpoint({.pace = 20ms, .tokens = 10});
  const Result<Results> results = run(options_for(endpoint.port()), 2000);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().requests, 40);
  EXPECT_GT(endpoint.most_at_once(), 20) << "it does not wait for answers";
  for (const Row& row : results->rows()) {
    EXPECT_GE(row.begun, row.due);
  }
}

TEST_F(RunTest, PromptsOfTokensAreAsLongAsWantedAndNeedNoSamples) {
  TestEndpoint endpoint({});
  RunOptions options = options_for(endpoint.port());
  options.api = Api::kCompletions;
  options.prompt_tokens = {{1, 2, 3}, {4}};
  options.answer_tokens = {42, 7};
  const Result<Results> results = run(options, 2000);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().requests, 40);
  EXPECT_EQ(endpoint.samples(), 0);
  EXPECT_EQ(endpoint.listed(), wanted(2000));
  EXPECT_EQ(endpoint.biased(), results->models()[0].requests) << "the other model has another one";
}

TEST_F(RunTest, AModelWithoutTokensIsAskedInWordsAndNotBiased) {
  TestEndpoint endpoint({});
  RunOptions options = options_for(endpoint.port());
  options.api = Api::kCompletions;
  options.prompt_tokens = {{1, 2, 3}, {}};
  options.answer_tokens = {7, 42};
  const Result<Results> results = run(options, 2000);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().requests, 40);
  EXPECT_EQ(results->all().failed, 0);
  EXPECT_EQ(endpoint.samples(), 0);
  EXPECT_GT(endpoint.listed(), 0);
  EXPECT_LT(endpoint.listed(), wanted(2000));
  EXPECT_EQ(endpoint.biased(), 0);
}

TEST_F(RunTest, ConnectionsThatAreNotKeptAreMadeAnew) {
  TestEndpoint endpoint({.tokens = 2, .keep_alive = false});
  RunOptions options = options_for(endpoint.port());
  options.concurrency = 2;
  const Result<Results> results = run(options, 0);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().failed, 0);
  EXPECT_GE(endpoint.connections(), 40);
}

TEST_F(RunTest, FailuresAreCountedByWhatTheServerSays) {
  TestEndpoint endpoint({.status = 503});
  RunOptions options = options_for(endpoint.port());
  options.concurrency = 2;
  const Result<Results> results = run(options, 0);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().failed, 40);
  EXPECT_EQ(results->errors().at("status 503: out of order"), 40);
}

TEST_F(RunTest, AServerThatIsSilentIsGivenUp) {
  TestEndpoint endpoint({.pace = 1h});
  RunOptions options = options_for(endpoint.port());
  options.concurrency = 2;
  options.requests = 2;
  options.patience = 50ms;
  const Result<Results> results = run(options, 0);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->all().failed, 2);
}

TEST_F(RunTest, ADurationEndsARun) {
  TestEndpoint endpoint({.tokens = 1});
  RunOptions options = options_for(endpoint.port());
  options.requests = 0;
  options.duration = 100ms;
  const Result<Results> results = run(options, 200);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_GT(results->all().requests, 2);
  EXPECT_LE(results->rows().back().due, 100ms);
}

TEST_F(RunTest, AnInterruptEndsARunWithWhatWasMeasured) {
  TestEndpoint endpoint({.pace = 1ms, .tokens = 3});
  RunOptions options = options_for(endpoint.port());
  options.requests = 0;
  options.concurrency = 4;
  const auto shots =
      draw_load({.weights = {1, 1}, .input = {10, 10}, .output = {3, 3}, .rate = 0, .seed = 3});
  const Result<Results> results = bench::run(options, *shots, [](const Progress& progress) {
    if (progress.ended > 5) {
      std::raise(SIGINT);
    }
  });
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_GT(results->all().requests, 5);
  EXPECT_EQ(results->all().failed, 0);
}

TEST_F(RunTest, WhereNobodyListensIsSaid) {
  std::uint16_t port = 0;
  {
    const TestEndpoint gone({});
    port = gone.port();
  }
  const Result<Results> results = run(options_for(port), 10);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::bench
