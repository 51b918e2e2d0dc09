// The promise of the engine: a sequence's tokens, and what is told with them, depend on its model,
// prompt and parameters alone. What is expected comes from an engine without a prefix cache.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/guests.h"
#include "engine/test_experts.h"
#include "engine/test_host.h"
#include "store/test_adapter.h"
#include "store/test_gguf_model.h"
#include "text/test_model_directory.h"

namespace heddle::engine {
namespace {

using spec::FinishReason;

/// What a client would know of a sequence: enough to submit it again to another worker.
struct Request {
  SequenceStart start{};
  std::vector<TokenId> expected{};            ///< All that it generates, run alone.
  std::vector<spec::TokenDetails> details{};  ///< What is told with each of them.
  std::int64_t computed = 0;                  ///< In the engine's present life of it.
  bool admitted = false;

  [[nodiscard]] bool done() const {
    return static_cast<std::size_t>(start.prompt_tokens) + expected.size() == start.tokens.size();
  }
  [[nodiscard]] std::int64_t pending() const {
    return static_cast<std::int64_t>(start.tokens.size()) - computed;
  }
};

/// What models of a schedule have beside their weights, or lack.
struct ScheduleWays {
  bool adapters = false;
  spec::KvType kv = spec::KvType::kComputed;
  bool in_part = false;  ///< Experts take turns in the device's memory.
};

class Schedule {
 public:
  Schedule(std::uint64_t seed,
           std::span<const std::string> cases,
           spec::DType dtype,
           const ScheduleWays& ways)
      : rng_(seed), host_(kPages, kPageBytes) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string& name = cases[rng_.below(cases.size())];
      const auto checkpoint = store::Checkpoint::open(path_of(name, dtype)).value();
      spec::ModelSpec spec = checkpoint.config.model;
      spec.adapter_rank = ways.adapters ? 8 : 0;
      spec.kv = ways.kv;
      if (ways.adapters) {
        open_adapters(ModelId{i + 1}, checkpoint.tensors, spec, dtype);
      }
      models_.emplace(ModelId{i + 1}, host_.load(checkpoint.tensors, spec, dtype));
      if (ways.in_part) {
        const std::int64_t all = spec.experts.count * spec.layers;
        const auto slots =
            static_cast<std::int64_t>(1 + rng_.below(static_cast<std::uint64_t>(all)));
        parts_.emplace(ModelId{i + 1}, load_in_part(host_, checkpoint.tensors, spec, dtype, slots));
      }
    }
    make_engine(/*prefix_cache=*/false);
    for (const auto& [id, model] : models_) {
      for (std::vector<TokenId>& text : texts_[id]) {
        for (int n = 0; n < 40; ++n) {
          text.push_back(draw_token(id));
        }
      }
      vocabularies_[id] = text::GrammarVocabulary::make(*text_, model.spec.vocab).value();
    }
    for (std::uint64_t id = 1; id <= 6; ++id) {
      requests_.push_back(draw_request(id));
      run_alone(requests_.back());
    }
    alone_ = false;
    make_engine(/*prefix_cache=*/true);
    // Another device's pages, for guests.
    for (const auto& [id, model] : models_) {
      lent_[id] = host_.pool().take(kWeightsLease, 12).value();
      HEDDLE_CHECK(engine_->guests().lend(id, lent_.at(id)).has_value());
    }
    // What is left of the pool is too small for all at once.
    const auto most =
        *std::max_element(requests_.begin(), requests_.end(), [this](const auto& a, const auto& b) {
          return pages_of(a) < pages_of(b);
        });
    left_ = pages_of(most) + 1 + adapter_pages_;
    HEDDLE_CHECK(host_.pool().take(kWeightsLease, host_.pool().free_count() - left_).has_value());
  }

  /// Two adapters of a model, some of one rank and some of another.
  void open_adapters(ModelId id,
                     const store::TensorSet& tensors,
                     const spec::ModelSpec& spec,
                     spec::DType dtype) {
    for (const std::int64_t rank : {3, 8}) {
      const std::filesystem::path directory =
          directory_.path() / ("adapter" + std::to_string(id.value()) + std::to_string(rank));
      store::random_adapter(store::all_tensors(tensors), rng_, rank).write(directory);
      auto opened = store::Adapter::open(directory, spec, dtype).value();
      adapter_pages_ =
          std::max(adapter_pages_,
                   static_cast<std::int64_t>((opened.image_bytes() + kPageBytes - 1) / kPageBytes));
      adapters_[id].push_back(std::make_shared<const store::Adapter>(std::move(opened)));
    }
  }

  /// A golden model; of blocks, as the file that it is written to, unless it has such itself.
  std::filesystem::path path_of(const std::string& name, spec::DType dtype) {
    std::filesystem::path path = golden_directory() / name;
    if (dtype == spec::DType::kStored) {
      const auto plain = store::Checkpoint::open(path).value();
      if (!plain.config.model.formats.empty()) {
        return path;
      }
      path = directory_.path() / (name + ".gguf");
      std::ofstream(path, std::ios::binary)
          << store::as_gguf_of_blocks(plain.config.model, plain.tensors).bytes();
    }
    return path;
  }

  /// Steps at random until all requests are done; false with a failure if a token differs.
  void run() {
    for (int step = 0; step < 10'000; ++step) {
      shake();
      const policy::StepPlan plan = draw_plan();
      if (plan.batches.empty()) {
        if (std::all_of(requests_.begin(), requests_.end(), [](auto& r) { return r.done(); })) {
          EXPECT_EQ(engine_->kv_pages(ModelId{1}) + engine_->kv_pages(ModelId{2}), 0);
          EXPECT_EQ(host_.pool().free_count() + engine_->cached_pages(), left_);
          return;
        }
        continue;
      }
      const auto outcome = engine_->run(plan);
      ASSERT_TRUE(outcome) << outcome.error().message;
      ASSERT_TRUE(outcome->failed.empty() && outcome->unready.empty());
      for (const SliceResult& result : outcome->results) {
        take(result);
      }
      starved_ += static_cast<int>(outcome->starved.size());
      if (!outcome->starved.empty()) {
        make_room();
      }
      host_.pool().check_invariants();
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    FAIL() << "no end in 10,000 steps";
  }

  [[nodiscard]] int starved() const { return starved_; }
  [[nodiscard]] int moved() const { return moved_; }
  /// Times that a layer took an expert that was there, or was not, while its model was.
  [[nodiscard]] std::uint64_t hits() const { return hits_; }
  [[nodiscard]] std::uint64_t misses() const { return misses_; }
  [[nodiscard]] PrefixCounts found() const {
    PrefixCounts all;
    for (const auto& [id, counts] : engine_->prefix_counts()) {
      all.hit_tokens += counts.hit_tokens;
      all.host_tokens += counts.host_tokens;
    }
    return all;
  }

 private:
  static constexpr std::uint64_t kPages = 480;
  static constexpr std::int64_t kStorePages = 10;
  static constexpr std::size_t kPageBytes = 4096;

  void make_engine(bool prefix_cache) {
    engine_.reset();
    engine_ = Engine::create(
                  host_.device(),
                  host_.pool(),
                  {.max_batch_tokens = 200, .prefix_cache = prefix_cache, .kv_pages = kStorePages})
                  .value();
    for (const auto& [id, model] : models_) {
      add_model(id);
    }
  }

  /// Alone it is there whole; else in part, where it has one, and without experts at first.
  void add_model(ModelId id) {
    const auto part = alone_ ? parts_.end() : parts_.find(id);
    const LoadedModel& model = part == parts_.end() ? models_.at(id) : part->second.model;
    ExpertSlots* experts = nullptr;
    if (part != parts_.end()) {
      count_fetches(id);
      experts_[id] = empty_slots(host_, part->second);
      experts = experts_.at(id).get();
    }
    HEDDLE_CHECK(
        engine_->add_model(id, model.spec, model.layout, model.window.base(), kKvLease, experts)
            .has_value());
    engine_->set_image_ready(id, model.layout.bytes);
  }

  void count_fetches(ModelId id) {
    if (const auto before = experts_.find(id); before != experts_.end()) {
      hits_ += before->second->counts().hits;
      misses_ += before->second->counts().misses;
    }
  }

  TokenId draw_token(ModelId id) {
    return static_cast<TokenId>(rng_.below(static_cast<std::uint64_t>(models_.at(id).spec.vocab)));
  }

  std::int64_t pages_of(const Request& request) const {
    return engine_->kv_pages_for(
        request.start.model,
        request.start.prompt_tokens + static_cast<std::int64_t>(request.expected.size()));
  }

  Request draw_request(std::uint64_t id) {
    Request request;
    request.start.id = SequenceId{id};
    request.start.model = ModelId{1 + rng_.below(2)};
    request.start.prompt_tokens = static_cast<std::int64_t>(1 + rng_.below(40));
    // Prompts begin as one of few texts and part from it somewhere.
    const std::vector<TokenId>& text = texts_.at(request.start.model)[rng_.below(2)];
    const std::uint64_t parts = rng_.below(2) == 0 ? 40 : rng_.below(40);
    for (std::uint64_t i = 0; std::cmp_less(i, request.start.prompt_tokens); ++i) {
      request.start.tokens.push_back(i < parts ? text[i] : draw_token(request.start.model));
    }
    request.start.cache_salt = rng_.below(4) == 0 ? "another" : "";
    if (const auto known = adapters_.find(request.start.model);
        known != adapters_.end() && rng_.below(3) != 0) {
      request.start.adapter = known->second[rng_.below(2)];
    }
    spec::SamplingParams& params = request.start.params;
    params.max_tokens = static_cast<std::int64_t>(1 + rng_.below(24));
    params.temperature = rng_.below(3) == 0 ? 0.0F : 0.9F;
    params.top_p = rng_.below(2) == 0 ? 1.0F : 0.9F;
    params.top_k = rng_.below(2) == 0 ? 0 : 12;
    params.frequency_penalty = rng_.below(2) == 0 ? 0.0F : 0.5F;
    params.repetition_penalty = rng_.below(2) == 0 ? 1.0F : 1.1F;
    params.seed = rng_.next();
    params.logprobs = static_cast<std::int32_t>(rng_.below(3)) - 1;
    if (rng_.below(2) == 0) {
      params.grammar = {.kind = spec::GrammarKind::kRegex, .text = "[A-Z]{2,9}(ab|a|[c-z]{1,5}_)*"};
    }
    if (rng_.below(6) == 0) {
      params = {.max_tokens = 1,
                .pooling = rng_.below(2) == 0 ? spec::Pooling::kMean : spec::Pooling::kLast};
    }
    return request;
  }

  /// The start of a life: grammars are compiled anew, and have seen nothing yet.
  SequenceStart fresh_start(const Request& request) {
    SequenceStart start = request.start;
    if (start.params.grammar.constrains()) {
      start.grammar =
          text::GrammarMatcher::open(vocabularies_.at(start.model), start.params.grammar).value();
    }
    return start;
  }

  void run_alone(Request& request) {
    HEDDLE_CHECK(engine_->add_sequence(fresh_start(request)).has_value());
    std::int64_t pending = request.start.prompt_tokens;
    for (auto finish = FinishReason::kNone; finish == FinishReason::kNone; pending = 1) {
      const auto outcome = engine_->run(
          {.batches = {{.model = request.start.model,
                        .slices = {{.sequence = request.start.id, .tokens = pending}}}}});
      HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
      request.expected.push_back(*outcome->results[0].token);
      request.details.push_back(outcome->results[0].details);
      finish = outcome->results[0].finish;
    }
    engine_->remove_sequence(request.start.id);
  }

  /// Admits, preempts, and moves requests to another life, at random; lets those that have computed
  /// nothing begin with what is cached.
  void shake() {
    if (rng_.below(10) == 0) {
      engine_->trim_cached(static_cast<std::int64_t>(rng_.below(4)), ledger::DropReason::kBound);
    }
    if (rng_.below(20) == 0) {
      evict(ModelId{1 + rng_.below(2)});
    }
    for (Request& request : requests_) {
      if (!request.admitted && !request.done() && rng_.below(3) == 0) {
        HEDDLE_CHECK(engine_->add_sequence(fresh_start(request)).has_value());
        request.admitted = true;
        request.computed = 0;
      } else if (request.admitted && rng_.below(12) == 0) {
        engine_->preempt(request.start.id);
        request.computed = 0;
      } else if (request.admitted && rng_.below(12) == 0) {  // Its worker dies.
        engine_->remove_sequence(request.start.id);
        request.admitted = false;
      }
      move_guests(request);
      if (request.admitted && request.computed == 0 && rng_.below(3) != 0) {
        request.computed = engine_->take_prefix(request.start.id);
        ASSERT_LT(request.computed, std::ssize(request.start.tokens));
      }
    }
  }

  /// The model leaves, and is there again.
  void evict(ModelId id) {
    for (Request& request : requests_) {
      if (request.admitted && request.start.model == id) {
        engine_->remove_sequence(request.start.id);
        request.admitted = false;
      }
    }
    engine_->remove_model(id);
    add_model(id);
    HEDDLE_CHECK(engine_->guests().lend(id, lent_.at(id)).has_value());
  }

  /// Moves KV of a sequence to lent pages, or back.
  void move_guests(const Request& request) {
    if (!request.admitted || rng_.below(3) != 0) {
      return;
    }
    if (rng_.below(4) == 0) {
      (void)engine_->guests().move_home(request.start.id);
    } else if (const auto away = engine_->guests().move_out(request.start.id, 1000)) {
      moved_ += *away > 0 ? 1 : 0;
    }
  }

  policy::StepPlan draw_plan() {
    policy::StepPlan plan;
    for (const auto& [id, model] : models_) {
      policy::ModelBatch batch{.model = id, .slices = {}};
      for (const Request& request : requests_) {
        if (request.start.model == id && request.admitted && rng_.below(4) != 0) {
          const auto pending = static_cast<std::uint64_t>(request.pending());
          batch.slices.push_back({.sequence = request.start.id,
                                  .tokens = static_cast<std::int64_t>(1 + rng_.below(pending))});
        }
      }
      for (std::size_t i = batch.slices.size(); i > 1; --i) {
        std::swap(batch.slices[i - 1], batch.slices[rng_.below(i)]);
      }
      if (!batch.slices.empty()) {
        plan.batches.push_back(std::move(batch));
      }
    }
    return plan;
  }

  void take(const SliceResult& result) {
    Request& request = requests_[result.sequence.value() - 1];
    request.computed = result.computed;
    if (!result.token.has_value()) {
      return;
    }
    const auto position = static_cast<std::size_t>(result.position);
    ASSERT_LT(position, request.expected.size());
    ASSERT_EQ(*result.token, request.expected[position])
        << "token " << position << " of sequence " << result.sequence.value();
    ASSERT_EQ(result.details.logprobs, request.details[position].logprobs);
    ASSERT_EQ(result.details.embedding, request.details[position].embedding);
    request.start.tokens.push_back(*result.token);
    EXPECT_EQ(result.finish != FinishReason::kNone, request.done());
    if (request.done()) {
      engine_->remove_sequence(request.start.id);
      request.admitted = false;
    }
  }

  void make_room() {
    for (Request& request : requests_) {
      if (request.admitted && rng_.below(2) == 0) {
        engine_->preempt(request.start.id);
        request.computed = 0;
      }
    }
  }

  Rng rng_;
  TestHost host_;
  std::unique_ptr<Engine> engine_;
  std::map<ModelId, LoadedModel> models_{};
  std::map<ModelId, LoadedInPart> parts_{};
  std::map<ModelId, std::unique_ptr<ExpertSlots>> experts_{};
  bool alone_ = true;  ///< What is expected is being computed.
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::map<ModelId, std::vector<memory::PageId>> lent_{};
  text::ByteModelDirectory directory_{'A', 62};
  std::shared_ptr<const text::TextModel> text_ = text::TextModel::open(directory_.path()).value();
  std::map<ModelId, std::shared_ptr<const text::GrammarVocabulary>> vocabularies_{};
  std::map<ModelId, std::array<std::vector<TokenId>, 2>> texts_{};
  std::vector<Request> requests_{};
  std::map<ModelId, std::vector<std::shared_ptr<const store::Adapter>>> adapters_{};
  std::int64_t adapter_pages_ = 0;  ///< Of the largest.
  std::int64_t left_ = 0;           ///< Pages that weights and others leave.
  int starved_ = 0;
  int moved_ = 0;  ///< Times that a sequence was seen to be away.
};

const std::vector<std::string> kCases{"llama-gqa-sharded",
                                      "llama-head-dim-64",
                                      "mistral-head-dim-32",
                                      "llama-rope-yarn-mscale-new",
                                      "mistral-window",
                                      "mistral-window-f32",
                                      "qwen2-window-types-new",
                                      "qwen3-tied",
                                      "qwen3-window"};

void run_schedules(spec::DType dtype,
                   const std::vector<std::string>& cases = kCases,
                   const ScheduleWays& ways = {}) {
  int starved = 0;
  int moved = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  PrefixCounts found;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(seed, cases, dtype, ways);
    schedule.run();
    starved += schedule.starved();
    moved += schedule.moved();
    hits += schedule.hits();
    misses += schedule.misses();
    found.hit_tokens += schedule.found().hit_tokens;
    found.host_tokens += schedule.found().host_tokens;
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(starved, 0) << "the schedules should be short of pages now and then";
  EXPECT_GT(found.hit_tokens, 1000U);
  EXPECT_GT(found.host_tokens, 500U) << "models should come back to what was kept of theirs";
  if (ops::attention_border() == 16) {  // Else sequences are too short.
    EXPECT_GT(moved, 50);
  }
  if (ways.in_part) {
    EXPECT_GT(hits, 1000U);
    EXPECT_GT(misses, 1000U) << "experts should be absent now and then";
  }
}

TEST(Invariance, TokensDoNotDependOnTheScheduleInFloat32) {
  run_schedules(spec::DType::kF32);
}

TEST(Invariance, TokensDoNotDependOnTheScheduleInBfloat16) {
  run_schedules(spec::DType::kBf16);
}

TEST(Invariance, TokensDoNotDependOnTheScheduleInInt8) {
  run_schedules(spec::DType::kI8);
}

TEST(Invariance, TokensThroughAdaptersDoNotDependOnTheSchedule) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    run_schedules(dtype, kCases, {.adapters = true});
  }
}

const std::vector<std::string> kHybrids{
    "qwen3-next", "qwen3-next-f32", "qwen3-5", "qwen3-5-f32", "qwen3-5-moe"};

TEST(Invariance, TokensOfHybridsDoNotDependOnTheSchedule) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16}) {
    run_schedules(dtype, kHybrids);
  }
}

TEST(Invariance, TokensOverKvInCodesDoNotDependOnTheSchedule) {
  run_schedules(spec::DType::kBf16, kCases, {.adapters = true, .kv = spec::KvType::kI8});
}

/// Sinks, and experts with biases.
TEST(Invariance, TokensOfGptOssDoNotDependOnTheSchedule) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16}) {
    run_schedules(dtype, {"gpt-oss", "gpt-oss-f32", "gpt-oss-head-dim-32"});
  }
}

/// Heads of two sizes, and experts beside an MLP.
TEST(Invariance, TokensOfGemma4DoNotDependOnTheSchedule) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16}) {
    run_schedules(dtype, {"gemma4", "gemma4-f32", "gemma4-moe"});
  }
}

/// What is expected is what the whole model says.
TEST(Invariance, TokensDoNotDependOnWhichExpertsAreThere) {
  for (const spec::DType dtype : {spec::DType::kBf16, spec::DType::kI8}) {
    run_schedules(dtype, {"qwen3-moe", "mixtral-experts", "qwen2-moe-shared"}, {.in_part = true});
  }
  run_schedules(spec::DType::kStored, {"qwen3-moe", "gpt-oss-mxfp4"}, {.in_part = true});
}

TEST(Invariance, TokensDoNotDependOnTheScheduleInBlocks) {
  run_schedules(spec::DType::kStored,
                {"llama-gqa-sharded",
                 "llama-head-dim-64",
                 "llama-bias-eps",
                 "qwen2-tied",
                 "qwen3-tied",
                 "qwen2-moe-shared",
                 "qwen3-moe",
                 "gemma2",
                 "gemma3-old",
                 "gpt-oss-mxfp4"});
}

}  // namespace
}  // namespace heddle::engine
