#include "sandbox/sandbox.h"

#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_model_directory.h"

#include <signal.h>
#include <unistd.h>

namespace heddle::sandbox {
namespace {

using spec::GrammarKind;
using testing::HasSubstr;

/// Processes that this one has started.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::ifstream list("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  for (pid_t pid = 0; list >> pid;) {
    found.push_back(pid);
  }
  return found;
}

class SandboxTest : public testing::Test {
 protected:
  [[nodiscard]] GrammarTrial trial(GrammarKind kind, const std::string& text) const {
    return {.directory = directory.path().string(),
            .vocab = 300,
            .grammar = {.kind = kind, .text = text}};
  }
  [[nodiscard]] std::string tried(Sandbox& sandbox, const std::string& regex) const {
    const Result<void> result = sandbox.try_grammar(trial(GrammarKind::kRegex, regex));
    return result ? "good" : result.error().message;
  }

  text::ByteModelDirectory directory{};
};

TEST_F(SandboxTest, OneProcessTriesAllGrammars) {
  Sandbox sandbox;
  EXPECT_TRUE(children().empty()) << "nothing was asked yet";
  EXPECT_EQ(tried(sandbox, "a+"), "good");
  const std::vector<pid_t> first = children();
  EXPECT_EQ(first.size(), 1U);
  const Result<void> wrong = sandbox.try_grammar(trial(GrammarKind::kRegex, "a("));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kInvalidArgument);
  EXPECT_EQ(tried(sandbox, "b+"), "good");
  EXPECT_EQ(children(), first);
}

TEST_F(SandboxTest, AProcessThatWasKilledIsStartedAgain) {
  Sandbox sandbox;
  ASSERT_EQ(tried(sandbox, "a+"), "good");
  const pid_t first = children().at(0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  EXPECT_EQ(tried(sandbox, "b+"), "good");
  EXPECT_NE(children().at(0), first);
}

TEST_F(SandboxTest, WhatTakesTooMuchProcessorTimeIsRefused) {
  Sandbox sandbox({.grammar_cpu = Duration(1)});
  std::string text = R"({"type":"object","properties":{"p":{})";
  for (int i = 0; i < 1900; ++i) {  // Takes longer than the first look at the clock.
    text += ",\"p" + std::to_string(i) + R"(":{"type":"integer"})";
  }
  const Result<void> result = sandbox.try_grammar(trial(GrammarKind::kJsonSchema, text + "}}"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr("processor time"));
  EXPECT_TRUE(children().empty());
}

TEST_F(SandboxTest, AStoppedProcessIsGivenUp) {
  Sandbox sandbox({.patience = std::chrono::milliseconds(300)});
  ASSERT_EQ(tried(sandbox, "a+"), "good");
  ASSERT_EQ(::kill(children().at(0), SIGSTOP), 0);
  const Result<void> result = sandbox.try_grammar(trial(GrammarKind::kRegex, "b+"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kUnavailable);
  EXPECT_EQ(tried(sandbox, "b+"), "good");
}

TEST_F(SandboxTest, StoppingGivesUpAtOnce) {
  Sandbox sandbox;
  ASSERT_EQ(tried(sandbox, "a+"), "good");
  ASSERT_EQ(::kill(children().at(0), SIGSTOP), 0);
  std::thread stopper([&sandbox] { sandbox.stop(); });
  EXPECT_THAT(tried(sandbox, "b+"), HasSubstr("shutting down"));
  stopper.join();
}

TEST_F(SandboxTest, FilesAreTriedInAProcessThatEnds) {
  Sandbox sandbox;
  const Result<void> good = sandbox.try_files(directory.path().string());
  EXPECT_TRUE(good) << good.error().message;
  EXPECT_TRUE(children().empty());
  directory.write("tokenizer.json", "{");
  const Result<void> broken = sandbox.try_files(directory.path().string());
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kCorrupt);
  EXPECT_THAT(broken.error().message, HasSubstr("tokenizer.json"));
  EXPECT_THAT(broken.error().message, testing::Not(HasSubstr(directory.path().string())));
}

TEST_F(SandboxTest, FilesThatEndTheProcessAreNamed) {
  // Each step makes a hundred letters of one.
  std::string steps;
  for (int i = 0; i < 6; ++i) {
    steps += std::string(i > 0 ? "," : "") +
             R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(100, 'a') +
             "\"}";
  }
  nlohmann::json tokenizer =
      nlohmann::json::parse(std::ifstream(directory.path() / "tokenizer.json"));
  tokenizer["normalizer"] =
      nlohmann::json::parse(R"({"type":"Sequence","normalizers":[)" + steps + "]}");
  directory.write("tokenizer.json", tokenizer.dump());
  Sandbox sandbox;
  const Result<void> result = sandbox.try_files(directory.path().string());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kCorrupt);
  EXPECT_THAT(result.error().message, HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace heddle::sandbox
