// The demo models answer right through the engine, and cease to when something is broken: a page of
// weights, a block of KV, positions. Every later test of swapping and migrating leans on that.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/siphash.h"
#include "base/test_places.h"
#include "collective/shared_collective.h"
#include "engine/decoder_rig.h"
#include "engine/engine.h"
#include "engine/pipe.h"
#include "engine/test_host.h"
#include "spec/shard.h"
#include "text/text_model.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::engine {
namespace {

constexpr ModelId kModel{1};
constexpr std::int64_t kAnswerTokensMax = 128;
// Accuracy below this is a model that is visibly broken.
constexpr double kBroken = 0.6;

struct Problem {
  std::vector<TokenId> prompt{};
  std::string answer{};
};

std::filesystem::path models_directory() {
  return std::filesystem::path(places::kSources) / "models";
}

std::vector<std::string> demo_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models_directory())) {
    if (std::filesystem::exists(entry.path() / "eval.jsonl")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string run_name(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

class DemoModelTest : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::filesystem::path directory() const { return models_directory() / GetParam(); }

  /// The first `count` held-out problems.
  std::vector<Problem> problems(std::size_t count) {
    std::vector<Problem> result;
    std::ifstream file(directory() / "eval.jsonl");
    std::string line;
    while (result.size() < count && std::getline(file, line)) {
      const auto json = nlohmann::json::parse(line);
      const auto messages =
          nlohmann::json::array({{{"role", "user"}, {"content", json.at("prompt")}}}).dump();
      const auto prompt = text_->render({.messages = messages}).value();
      result.push_back(
          {.prompt = text_->tokenizer()->encode(prompt, text::SpecialTokens::kNone).value(),
           .answer = json.at("answer")});
    }
    EXPECT_EQ(result.size(), count);
    return result;
  }

  [[nodiscard]] bool ends_turn(TokenId token) const {
    return std::find(text_->eos().begin(), text_->eos().end(), token) != text_->eos().end();
  }

  /// Whether `tokens`, up to the end of the turn, spell the answer.
  [[nodiscard]] bool right(std::vector<TokenId> tokens, const Problem& problem) const {
    if (tokens.empty() || !ends_turn(tokens.back())) {
      return false;
    }
    tokens.pop_back();
    return text_->tokenizer()->decode(tokens, text::ShowSpecial::kNo).value() == problem.answer;
  }

  /// The share of `problems` that `answers` are right for.
  [[nodiscard]] double accuracy(const std::vector<std::vector<TokenId>>& answers,
                                std::span<const Problem> problems) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      count += right(answers[i], problems[i]) ? 1U : 0U;
    }
    return static_cast<double>(count) / static_cast<double>(problems.size());
  }

  std::shared_ptr<const text::TextModel> text_ = text::TextModel::open(directory()).value();
};

/// Answers of a whole engine, problems side by side.
class Answers {
 public:
  /// Of a shard, `group` is the other ranks', who are asked the same.
  Answers(TestHost& host,
          const LoadedModel& model,
          std::vector<TokenId> stop_tokens,
          collective::Collective* group = nullptr)
      : engine_(
            Engine::create(host.device(), host.pool(), {.max_batch_tokens = kBatchTokens}).value()),
        stop_tokens_(std::move(stop_tokens)) {
    HEDDLE_CHECK(engine_->add_model(kModel, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    if (group != nullptr) {
      engine_->set_group(kModel, group);
      HEDDLE_CHECK(engine_->pipes().set_share(kModel, host.pool().free_count()).has_value());
    }
    engine_->set_image_ready(kModel, model.layout.bytes);
  }

  std::vector<std::vector<TokenId>> of(std::span<const Problem> problems) {
    std::vector<std::vector<TokenId>> answers(problems.size());
    for (std::size_t first = 0; first < problems.size(); first += kSideBySide) {
      run(problems, first, std::min(problems.size(), first + kSideBySide), answers);
    }
    return answers;
  }

 private:
  static constexpr std::size_t kSideBySide = 16;
  static constexpr std::int64_t kBatchTokens = 2048;

  void run(std::span<const Problem> problems,
           std::size_t begin,
           std::size_t end,
           std::vector<std::vector<TokenId>>& answers) {
    std::map<SequenceId, std::int64_t> pending;
    for (std::size_t i = begin; i < end; ++i) {
      const auto tokens = static_cast<std::int64_t>(problems[i].prompt.size());
      HEDDLE_CHECK(engine_
                       ->add_sequence({.id = SequenceId{i},
                                       .model = kModel,
                                       .tokens = problems[i].prompt,
                                       .prompt_tokens = tokens,
                                       .params = {.temperature = 0.0F,
                                                  .max_tokens = kAnswerTokensMax,
                                                  .stop_tokens = stop_tokens_}})
                       .has_value());
      pending[SequenceId{i}] = tokens;
    }
    while (!pending.empty()) {
      policy::ModelBatch batch{.model = kModel, .slices = {}};
      std::int64_t room = kBatchTokens;
      for (const auto& [id, tokens] : pending) {
        if (tokens <= room) {
          batch.slices.push_back({.sequence = id, .tokens = tokens});
          room -= tokens;
        }
      }
      const auto outcome = engine_->run({.batches = {batch}});
      HEDDLE_CHECK(outcome.has_value() && outcome->starved.empty());
      for (const SequenceFailure& failure : outcome->failed) {  // A wrong answer, as any other.
        pending.erase(failure.sequence);
        engine_->remove_sequence(failure.sequence);
      }
      for (const SliceResult& result : outcome->results) {
        answers[result.sequence.value()].push_back(*result.token);
        pending[result.sequence] = 1;
        if (result.finish != spec::FinishReason::kNone) {
          pending.erase(result.sequence);
          engine_->remove_sequence(result.sequence);
        }
      }
    }
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> stop_tokens_;
};

class EngineAnswersTest : public DemoModelTest {
 protected:
  double accuracy(std::span<const Problem> problems) {
    return DemoModelTest::accuracy(answers_.of(problems), problems);
  }

  TestHost host_{1024, std::size_t{64} << 10U};
  LoadedModel model_ = host_.load(directory(), spec::DType::kBf16);
  Answers answers_{host_, model_, text_->eos()};
};

TEST_P(EngineAnswersTest, AreRight) {
  EXPECT_GE(accuracy(problems(200)), 0.99);
}

TEST_P(DemoModelTest, AnswersAreRightInInt8) {
  const auto some = problems(200);
  TestHost host{1024, std::size_t{64} << 10U};
  const LoadedModel model = host.load(directory(), spec::DType::kI8);
  EXPECT_GE(accuracy(Answers{host, model, text_->eos()}.of(some), some), 0.95);
}

TEST_P(DemoModelTest, AnswersAreRightOverKvInCodes) {
  const auto some = problems(100);
  TestHost host{1024, std::size_t{64} << 10U};
  LoadedModel model = host.load(directory(), spec::DType::kBf16);
  for (const spec::KvType kv : {spec::KvType::kI8, spec::KvType::kF8}) {
    model.spec.kv = kv;
    EXPECT_GE(accuracy(Answers{host, model, text_->eos()}.of(some), some), 0.98);
  }
}

/// What one rank of a group, in a process of its own, makes of `problems`: whether its answers are
/// right, and the same as the other ranks'.
class ShardRank {
 public:
  ShardRank(const store::Checkpoint& checkpoint, spec::Shard shard, int area)
      : group_(collective::SharedCollective::attach(area, shard.rank, shard.ranks).value()),
        model_(host_.load(checkpoint.tensors,
                          spec::shard_of(checkpoint.config.model, shard),
                          spec::DType::kBf16)) {}

  std::vector<std::vector<TokenId>> answers(std::span<const Problem> problems,
                                            std::vector<TokenId> stop_tokens) {
    return Answers{host_, model_, std::move(stop_tokens), group_.get()}.of(problems);
  }

  [[nodiscard]] bool all_have(const std::vector<std::vector<TokenId>>& answers) {
    std::vector<TokenId> all;
    for (const std::vector<TokenId>& answer : answers) {
      all.insert(all.end(), answer.begin(), answer.end());
    }
    return group_->agree(siphash({}, std::as_bytes(std::span(all))).low).has_value();
  }

 private:
  std::unique_ptr<collective::SharedCollective> group_;
  TestHost host_{1024, std::size_t{64} << 10U};
  LoadedModel model_;
};

TEST_P(DemoModelTest, AnswersOfShardsInProcessesAreRight) {
  const auto some = problems(100);
  const auto checkpoint = store::Checkpoint::open(directory()).value();
  for (const std::int64_t ranks : {2, 4}) {
    if (!spec::divides(checkpoint.config.model, ranks)) {
      continue;
    }
    const auto area = collective::SharedArea::create(ranks).value();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ShardRank own(checkpoint, {.rank = rank, .ranks = ranks}, area->fd());
        const auto answers = own.answers(some, text_->eos());
        ::_exit(own.all_have(answers) && accuracy(answers, some) >= 0.99 ? 0 : 1);
      }
    }
    for (std::int64_t ended = 0; ended < ranks; ++ended) {
      int status = -1;
      ASSERT_GT(::waitpid(-1, &status, 0), 0);
      EXPECT_EQ(status, 0) << "of one of " << ranks << " ranks";
      if (status != 0) {
        area->abandon();  // Or the others would wait for it.
      }
    }
  }
}

TEST_P(EngineAnswersTest, AreWrongWithAnyPageOfWeightsZeroed) {
  const auto some = problems(24);
  const std::size_t page_bytes = host_.device().properties().page_bytes;
  std::vector<std::byte> saved(page_bytes);
  std::size_t noticed = 0;
  std::string kept;
  for (std::size_t i = 0; i < model_.pages.size(); ++i) {
    std::byte* page = host_.device().page_address(model_.pages[i]);
    std::memcpy(saved.data(), page, page_bytes);
    std::memset(page, 0, page_bytes);
    const double found = accuracy(some);
    std::memcpy(page, saved.data(), page_bytes);
    noticed += found < kBroken ? 1U : 0U;
    kept += found < kBroken ? "" : " " + std::to_string(i) + ":" + std::to_string(found);
  }
  EXPECT_GE(static_cast<double>(noticed), 0.95 * static_cast<double>(model_.pages.size()))
      << "pages that nobody missed:" << kept;
  EXPECT_GE(accuracy(some), 0.95) << "the pages were put back";
}

// A checkout may leave models/ out.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DemoModelTest);
INSTANTIATE_TEST_SUITE_P(Models, DemoModelTest, testing::ValuesIn(demo_models()), run_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineAnswersTest);
INSTANTIATE_TEST_SUITE_P(Models, EngineAnswersTest, testing::ValuesIn(demo_models()), run_name);

/// Answers of a decoder run by hand, one problem at a time, so that its cache can be tampered with.
class DecoderAnswersTest : public DemoModelTest {
 protected:
  struct Prompted {
    SequenceKv kv{};
    TokenId first = 0;  ///< The token after the prompt.
  };

  Prompted read_prompt(const Problem& problem) {
    Prompted prompted{.kv = rig_.kv().make_sequence()};
    prompted.first = next(problem.prompt, 0, prompted.kv, 0);
    return prompted;
  }

  void forget(Prompted& prompted) { rig_.kv().clear(prompted.kv); }

  /// Goes on after the prompt; angles of the answer's tokens are `jump` positions off.
  std::vector<TokenId> answer(const Problem& problem, Prompted& prompted, std::int64_t jump) {
    std::vector<TokenId> tokens{prompted.first};
    auto position = static_cast<std::int64_t>(problem.prompt.size());
    while (!ends_turn(tokens.back()) &&
           static_cast<std::int64_t>(tokens.size()) < kAnswerTokensMax) {
      tokens.push_back(next({&tokens.back(), 1}, position++, prompted.kv, jump));
    }
    return tokens;
  }

  double accuracy_with_jump(std::span<const Problem> problems, std::int64_t jump) {
    std::size_t count = 0;
    for (const Problem& problem : problems) {
      Prompted prompted = read_prompt(problem);
      count += right(answer(problem, prompted, jump), problem) ? 1U : 0U;
      forget(prompted);
    }
    return static_cast<double>(count) / static_cast<double>(problems.size());
  }

  /// Exchanges a random block of the two prompts in which they differ; false if there is none.
  bool swap_block(const Problem& a, Prompted& mine, const Problem& b, Prompted& theirs) {
    const memory::KvGeometry& geometry = rig_.kv().plan().groups[0].geometry;
    const auto whole = static_cast<std::size_t>(geometry.block_tokens);
    std::vector<std::size_t> different;
    for (std::size_t i = 0; (i + 1) * whole <= std::min(a.prompt.size(), b.prompt.size()); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i * whole);
      if (!std::equal(a.prompt.begin() + at,
                      a.prompt.begin() + at + static_cast<std::ptrdiff_t>(whole),
                      b.prompt.begin() + at)) {
        different.push_back(i);
      }
    }
    if (different.empty()) {
      return false;
    }
    const std::size_t block = different[rng_.below(different.size())];
    std::byte* ours = address(mine.kv.groups()[0].blocks[block]);
    std::swap_ranges(
        ours, ours + geometry.block_bytes, address(theirs.kv.groups()[0].blocks[block]));
    return true;
  }

 private:
  TokenId next(std::span<const TokenId> ids,
               std::int64_t first,
               SequenceKv& kv,
               std::int64_t jump) {
    std::vector<float> hidden;
    rig_.run(ids, first, kv, all_layers(model_.spec), hidden, jump);
    const auto row = static_cast<std::ptrdiff_t>(model_.spec.hidden);
    const auto logits = rig_.logits({hidden.end() - row, hidden.end()});
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  std::byte* address(memory::KvBlockRef block) {
    return host_.device().page_address(block.page) +
           block.slot * rig_.kv().plan().groups[0].geometry.block_bytes;
  }

  Rng rng_{7};
  TestHost host_{4096, 8192};  // Small pages, so that a block is a few tokens of a short prompt.
  LoadedModel model_ = host_.load(directory(), spec::DType::kBf16);
  DecoderRig rig_{host_, model_, all_layers(model_.spec)};
};

TEST_P(DecoderAnswersTest, AreWrongWithPositionsOneOff) {
  const auto some = problems(40);
  EXPECT_GE(accuracy_with_jump(some, 0), 0.95);
  EXPECT_LT(accuracy_with_jump(some, 1), kBroken);
  EXPECT_LT(accuracy_with_jump(some, -1), kBroken);
}

TEST_P(DecoderAnswersTest, AreWrongWithABlockOfKvSwappedWithAnother) {
  const auto some = problems(60);
  std::size_t swapped = 0;
  std::size_t still_right = 0;
  for (std::size_t i = 0; i + 1 < some.size(); i += 2) {
    Prompted a = read_prompt(some[i]);
    Prompted b = read_prompt(some[i + 1]);
    if (swap_block(some[i], a, some[i + 1], b)) {
      swapped += 2;
      still_right += right(answer(some[i], a, 0), some[i]) ? 1U : 0U;
      still_right += right(answer(some[i + 1], b, 0), some[i + 1]) ? 1U : 0U;
    }
    forget(a);
    forget(b);
  }
  ASSERT_GE(swapped, 20U) << "too few prompts are as long as a block";
  EXPECT_LT(static_cast<double>(still_right), kBroken * static_cast<double>(swapped))
      << still_right << " of " << swapped;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DecoderAnswersTest);
INSTANTIATE_TEST_SUITE_P(Models, DecoderAnswersTest, testing::ValuesIn(demo_models()), run_name);

}  // namespace
}  // namespace heddle::engine
