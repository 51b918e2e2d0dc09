#include "worker/grammars.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_model_directory.h"

namespace heddle::worker {
namespace {

using SequenceId = Grammars::SequenceId;
using testing::ElementsAre;

constexpr ModelId kModel{1};
constexpr ModelId kOther{2};
constexpr std::int64_t kVocab = 258;
constexpr SequenceId kFirst{1};
constexpr SequenceId kSecond{2};
constexpr SequenceId kThird{3};

spec::Grammar regex(std::string text) {
  return {.kind = spec::GrammarKind::kRegex, .text = std::move(text)};
}

/// The bytes that may come next, of a model whose tokens are bytes.
std::string next(text::GrammarMatcher& matcher) {
  std::vector<std::uint32_t> words((kVocab + 31) / 32);
  EXPECT_TRUE(matcher.mask(words));
  std::string bytes;
  for (std::size_t i = 0; i < 256; ++i) {
    if ((words[i / 32] >> (i % 32) & 1U) != 0) {
      bytes += static_cast<char>(i);
    }
  }
  return bytes;
}

class GrammarsTest : public testing::Test {
 protected:
  GrammarsTest() {
    for (const ModelId model : {kModel, kOther}) {
      grammars_.describe(model, directory_.path().string(), kVocab);
    }
  }
  void start() { ASSERT_TRUE(grammars_.start()); }
  /// What a sequence gets, whenever it does.
  Grammars::Matcher have(SequenceId sequence, ModelId model, const spec::Grammar& grammar) {
    Grammars::Matcher kept = grammars_.ask(sequence, model, grammar);
    return kept != nullptr ? kept : grammars_.take(sequence).value();
  }

  const text::ByteModelDirectory directory_{};
  /// What the thread has said, once that is so much.
  std::vector<SequenceId> said(std::size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return said_.size() >= count; });
    return said_;
  }

  std::mutex mutex_{};
  std::condition_variable more_{};
  std::vector<SequenceId> said_{};  ///< Under mutex_.
  Grammars grammars_{[this](SequenceId sequence) {
    const std::lock_guard lock(mutex_);
    said_.push_back(sequence);
    more_.notify_all();
  }};
};

TEST_F(GrammarsTest, EqualGrammarsAreCompiledOnceAndEachSequenceGoesItsOwnWay) {
  EXPECT_EQ(grammars_.ask(kFirst, kModel, regex("ab|cd")), nullptr);
  EXPECT_EQ(grammars_.ask(kSecond, kModel, regex("ab|cd")), nullptr);
  start();
  const Grammars::Matcher first = grammars_.take(kFirst).value();
  const Grammars::Matcher second = grammars_.take(kSecond).value();
  EXPECT_EQ(grammars_.compiled(), 1U);
  ASSERT_TRUE(first->accept(std::vector<TokenId>{'c'}));
  EXPECT_EQ(next(*first), "d");
  EXPECT_EQ(next(*second), "ac");

  const Grammars::Matcher kept = grammars_.ask(kThird, kModel, regex("ab|cd"));
  ASSERT_NE(kept, nullptr) << "what is kept is had at once";
  EXPECT_EQ(next(*kept), "ac") << "from its start";
  EXPECT_EQ(grammars_.compiled(), 1U);
}

TEST_F(GrammarsTest, CompilesInTheOrderInWhichItWasAsked) {
  for (const SequenceId sequence : {kThird, kFirst, kSecond}) {
    (void)grammars_.ask(sequence, kModel, regex("x" + std::to_string(sequence.value())));
  }
  start();
  for (const SequenceId sequence : {kFirst, kSecond, kThird}) {
    EXPECT_TRUE(grammars_.take(sequence));
  }
  EXPECT_THAT(said(3), ElementsAre(kThird, kFirst, kSecond));
}

TEST_F(GrammarsTest, WhatIsKeptGoesBeforeWhatHasToBeCompiled) {
  const spec::Grammar large = regex(std::string(Grammars::kSmallBytes + 1, 'z'));
  start();
  EXPECT_EQ(next(*have(kFirst, kModel, large)), "z");
  EXPECT_EQ(grammars_.ask(kSecond, kModel, large), nullptr) << "copying it takes long, too";
  EXPECT_TRUE(grammars_.take(kSecond));
  EXPECT_EQ(grammars_.compiled(), 1U);
}

TEST_F(GrammarsTest, AWrongGrammarIsAnErrorForItsSequence) {
  (void)grammars_.ask(kFirst, kModel, regex("(ab"));
  (void)grammars_.ask(kSecond, kModel, regex("ab"));
  start();
  const auto wrong = grammars_.take(kFirst);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(grammars_.take(kSecond));
}

TEST_F(GrammarsTest, AModelWithoutATokenizerIsAnErrorToo) {
  grammars_.describe(kOther, directory_.path().string() + "/nowhere", kVocab);
  (void)grammars_.ask(kFirst, kOther, regex("ab"));
  start();
  EXPECT_FALSE(grammars_.take(kFirst));
}

TEST_F(GrammarsTest, WhatNobodyWaitsForIsNotCompiled) {
  (void)grammars_.ask(kFirst, kModel, regex("ab"));
  (void)grammars_.ask(kSecond, kModel, regex("cd"));
  (void)grammars_.ask(kThird, kModel, regex("cd"));
  grammars_.forget(kFirst);
  grammars_.forget(kSecond);
  start();
  EXPECT_EQ(next(*grammars_.take(kThird).value()), "c");
  EXPECT_EQ(grammars_.compiled(), 1U);
}

TEST_F(GrammarsTest, NothingIsKeptOfAModelThatIsForgotten) {
  start();
  (void)have(kFirst, kModel, regex("ab"));
  (void)have(kSecond, kOther, regex("ab"));
  EXPECT_EQ(grammars_.compiled(), 2U) << "each model has its own tokens";
  grammars_.forget(kModel);
  EXPECT_NE(grammars_.ask(kThird, kOther, regex("ab")), nullptr);
  EXPECT_EQ(grammars_.ask(kThird, kModel, regex("ab")), nullptr);
  EXPECT_EQ(next(*grammars_.take(kThird).value()), "a");
}

TEST_F(GrammarsTest, KeepsThoseUsedLast) {
  start();
  std::uint64_t sequence = 0;
  const auto ask = [&](std::size_t number) {
    return have(SequenceId(++sequence), kModel, regex("a" + std::to_string(number)));
  };
  for (std::size_t i = 0; i < Grammars::kKeptMax; ++i) {
    (void)ask(i);
  }
  (void)ask(0);
  EXPECT_EQ(grammars_.compiled(), Grammars::kKeptMax);
  (void)ask(Grammars::kKeptMax);  // In the place of number 1.
  (void)ask(0);
  EXPECT_EQ(grammars_.compiled(), Grammars::kKeptMax + 1);
  (void)ask(1);
  EXPECT_EQ(grammars_.compiled(), Grammars::kKeptMax + 2);
}

TEST_F(GrammarsTest, KeepsNoMoreTextThanItMay) {
  start();
  const std::size_t third = Grammars::kKeptBytesMax / 3;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    const std::string name(1, letter);
    // Comments are text, but cost nothing.
    (void)have(SequenceId(static_cast<std::uint64_t>(letter)),
               kModel,
               {.kind = spec::GrammarKind::kLark,
                .text = "start: \"" + name + "\"\n//" + std::string(third, letter)});
  }
  EXPECT_EQ(grammars_.compiled(), 4U);
  (void)have(
      kFirst,
      kModel,
      {.kind = spec::GrammarKind::kLark, .text = "start: \"a\"\n//" + std::string(third, 'a')});
  EXPECT_EQ(grammars_.compiled(), 5U);
}

}  // namespace
}  // namespace heddle::worker
