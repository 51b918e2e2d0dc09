#include "external/probe.h"

#include <fstream>

#include <gtest/gtest.h>

#include "external/health.h"
#include "external/test_engine.h"
#include "http/client.h"

namespace heddle::external {
namespace {

using Expectation = Probe::Expectation;

struct Probed : RunningEngine {
  explicit Probed(const std::vector<std::string>& flags = {},
                  spec::EngineKind kind = spec::EngineKind::kGeneric)
      : RunningEngine(flags), probe(address, kind, "alpha") {
    HEDDLE_CHECK(run(loop, await_healthy(address, "", 1min, [] { return std::optional<Error>(); }))
                     .has_value());
  }
  Result<void> learn() { return run(loop, probe.learn(1min)); }
  Result<void> again() { return run(loop, probe.again(1min)); }
  Result<void> again_briefly() { return run(loop, probe.again_briefly(1min)); }

  std::string get(const std::string& path) {
    const auto answer = run(loop, http::exchange(address, {.target = path, .patience = 1min}));
    HEDDLE_CHECK(answer.has_value());
    return answer->body;
  }
  /// Requests for inference so far.
  std::size_t questions() {
    const std::string calls = get("/calls");
    std::size_t count = 0;
    for (auto at = calls.find("/v1/"); at != std::string::npos; at = calls.find("/v1/", at + 1)) {
      ++count;
    }
    return count;
  }

  Probe probe;
};

TEST(Probe, LearnsAnAnswerAndKnowsItAgain) {
  Probed engine;
  ASSERT_TRUE(engine.learn().has_value());
  EXPECT_EQ(engine.probe.expectation(), Expectation::kSameAnswer);
  EXPECT_TRUE(engine.again().has_value());
}

TEST(Probe, FindsGarbage) {
  const Scratch garbage;
  Probed engine({"--garbage-while", garbage / "now"});
  ASSERT_TRUE(engine.learn().has_value());
  std::ofstream(garbage / "now") << "x";
  const auto wrong = engine.again();
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  EXPECT_NE(wrong.error().message.find("was 'alpha heard"), std::string::npos)
      << wrong.error().message;
}

TEST(Probe, FindsGarbageOfAModelThatHasNothingToSayUnlessItMust) {
  const Scratch garbage;
  const std::vector<std::string> flags{"--taciturn", "--garbage-while", garbage / "now"};
  Probed silent(flags);
  ASSERT_TRUE(silent.learn().has_value());
  EXPECT_EQ(silent.probe.expectation(), Expectation::kNothing);
  Probed engine(flags, spec::EngineKind::kVllm);
  ASSERT_TRUE(engine.learn().has_value());
  EXPECT_EQ(engine.probe.expectation(), Expectation::kSameAnswer);
  EXPECT_TRUE(engine.again().has_value());
  EXPECT_TRUE(engine.again_briefly().has_value());
  std::ofstream(garbage / "now") << "x";
  EXPECT_FALSE(engine.again().has_value());
}

TEST(Probe, BrieflyAsksForTheFirstTokenOnly) {
  Probed engine;
  EXPECT_TRUE(engine.again_briefly().has_value()) << "nothing is known yet";
  ASSERT_TRUE(engine.learn().has_value());
  const std::size_t before = engine.questions();
  ASSERT_TRUE(engine.again_briefly().has_value());
  EXPECT_EQ(engine.questions(), before + 1);
  EXPECT_NE(engine.get("/last_request").find("\"max_tokens\": 1,"), std::string::npos);
}

TEST(Probe, AsksForAllWhereTheFirstTokenSaysNothing) {
  Probed engine({"--hides-first"});
  ASSERT_TRUE(engine.learn().has_value());
  const std::size_t before = engine.questions();
  EXPECT_TRUE(engine.again_briefly().has_value());
  EXPECT_EQ(engine.questions(), before + 2);
}

TEST(Probe, FindsGarbageBrieflyToo) {
  const Scratch garbage;
  Probed engine({"--garbage-while", garbage / "now"});
  ASSERT_TRUE(engine.learn().has_value());
  std::ofstream(garbage / "now") << "x";
  const auto wrong = engine.again_briefly();
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
}

TEST(Probe, ExpectsSomeAnswerOfAnEngineThatDiffers) {
  Probed engine({"--random"});
  ASSERT_TRUE(engine.learn().has_value());
  EXPECT_EQ(engine.probe.expectation(), Expectation::kAnyAnswer);
  EXPECT_TRUE(engine.again().has_value());
}

TEST(Probe, FallsBackToCompletionsAndToNothing) {
  Probed completions({"--no-chat"});
  ASSERT_TRUE(completions.learn().has_value());
  EXPECT_EQ(completions.probe.expectation(), Expectation::kSameAnswer);
  Probed embeddings({"--embeddings-only"});
  ASSERT_TRUE(embeddings.learn().has_value());
  EXPECT_EQ(embeddings.probe.expectation(), Expectation::kNothing);
  EXPECT_TRUE(embeddings.again().has_value());
}

TEST(Probe, FailsWithAnEngineThatFails) {
  Probed engine({"--fail", "1"});
  const auto failed = engine.learn();
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().message.find("status 500"), std::string::npos);
  Probed slow({"--first-token-ms", "10000"});
  const auto late = run(slow.loop, slow.probe.learn(100ms));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
}

TEST(AnswerText, IsReadFromBothForms) {
  EXPECT_EQ(answer_text(R"({"choices":[{"message":{"content":"a"}}]})"), "a");
  EXPECT_EQ(answer_text(R"({"choices":[{"message":{"content":null,"reasoning_content":"r"}}]})"),
            "r");
  EXPECT_EQ(answer_text(R"({"choices":[{"text":"t"}]})"), "t");
  for (const char* other :
       {"", "{}", "[1]", R"({"choices":[]})", R"({"choices":[7]})", "nonsense"}) {
    EXPECT_EQ(answer_text(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace heddle::external
