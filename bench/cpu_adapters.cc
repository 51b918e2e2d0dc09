// What LoRA adapters cost in decode: a Llama of 1.6e8 parameters in bfloat16 with random weights,
// in its engine, and steps of eight sequences of which 0, 1, 4 or 8 adapters are asked, all in one
// run. A model with an adapter in its weights takes as long as one without; eight such models take
// eight steps of one sequence.
//
//   cpu_adapters [CORE,CORE,...]     (default: all cores that this process may use)
//
// Steps of all kinds are measured in turns, and the best of all rounds counts for each: on a shared
// machine no long stretch is quiet.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "bench/cpu_bed.h"
#include "bench/cpu_ceilings.h"
#include "engine/engine.h"
#include "ops/bf16.h"
#include "ops/cpu/simd/kernels.h"
#include "store/adapter.h"
#include "store/image_layout.h"
#include "store/test_adapter.h"

namespace heddle {
namespace {

using namespace bench;

constexpr std::int64_t kKvPages = 400;
constexpr std::int64_t kPrompt = 16;
constexpr std::int64_t kTogether = 8;
constexpr std::int64_t kLongPrompt = 128;
constexpr int kRounds = 20;
constexpr int kPrefillEach = 5;  ///< Rounds.
constexpr memory::OwnerId kKvLease{2};
constexpr ModelId kModel{1};

spec::ModelSpec llama_160m() {
  return {.hidden = 1024,
          .layers = 8,
          .heads = 16,
          .kv_heads = 8,
          .head_dim = 64,
          .intermediate = 4096,
          .vocab = 32000,
          .max_position = 4096,
          .rms_eps = 1e-5,
          .rope_theta = 500000.0,
          .tied_embeddings = true,
          .window = std::vector<std::int64_t>(8, 0),
          .adapter_rank = 64};
}

/// The shapes of its projections, as a checkpoint names them.
store::TestTensors projections(const spec::ModelSpec& model) {
  const std::int64_t q = model.heads * model.head_dim;
  const std::int64_t kv = model.kv_heads * model.head_dim;
  store::TestTensors tensors;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string stem = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const char* name, std::int64_t outputs, std::int64_t inputs) {
      tensors[stem + name + ".weight"] = {.shape = {outputs, inputs}};
    };
    add("self_attn.q_proj", q, model.hidden);
    add("self_attn.k_proj", kv, model.hidden);
    add("self_attn.v_proj", kv, model.hidden);
    add("self_attn.o_proj", model.hidden, q);
    add("mlp.gate_proj", model.intermediate, model.hidden);
    add("mlp.up_proj", model.intermediate, model.hidden);
    add("mlp.down_proj", model.hidden, model.intermediate);
  }
  return tensors;
}

class Bench {
 public:
  explicit Bench(const std::vector<int>& cores)
      : layout_(store::plan_image(model_, spec::DType::kBf16)),
        bed_(layout_, kKvPages, cores),
        engine_(
            engine::Engine::create(bed_.device(), bed_.pool(), {.prefix_cache = true}).value()) {
    HEDDLE_CHECK(engine_->add_model(kModel, model_, layout_, bed_.image(), kKvLease).has_value());
    engine_->set_image_ready(kModel, layout_.bytes);
    std::printf("%zu threads, kernels %s, %.2e parameters\n",
                cores.size(),
                ops::cpu::simd_kernels().name,
                static_cast<double>(layout_.bytes) / 2);
  }

  void run(std::int64_t rank) {
    make_adapters(rank);
    std::map<int, std::vector<policy::StepSlice>> steps;
    for (const int kinds : {0, 1, 4, 8}) {
      for (std::int64_t i = 0; i < kTogether; ++i) {
        const auto id = add(kPrompt, kinds == 0 ? -1 : static_cast<int>(i) % kinds);
        step({{.sequence = id, .tokens = kPrompt}});
        steps[kinds].push_back({.sequence = id, .tokens = 1});
      }
    }
    Best alone;
    std::map<int, Best> decode;
    std::map<int, Best> prefill;
    for (int round = 0; round < kRounds; ++round) {
      alone.take([&] { step({steps[0].front()}); });
      for (const auto& [kinds, slices] : steps) {
        decode[kinds].take([&, &step_of = slices] { step(step_of); });
      }
      for (int adapter = -1; adapter < 1 && round % kPrefillEach == 0; ++adapter) {
        const auto id = add(kLongPrompt, adapter);
        prefill[adapter].take([&] { step({{.sequence = id, .tokens = kLongPrompt}}); });
        engine_->remove_sequence(id);
      }
    }
    report(rank, alone, decode, prefill);
    for (const auto& [kinds, slices] : steps) {
      for (const policy::StepSlice& slice : slices) {
        engine_->remove_sequence(slice.sequence);
      }
    }
  }

 private:
  static void report(std::int64_t rank,
                     const Best& alone,
                     std::map<int, Best>& decode,
                     std::map<int, Best>& prefill) {
    const auto line = [](const std::string& what, const Best& took, const Best& base) {
      std::printf("  %-38s %7.2f ms: %5.2f times; by processor time %5.2f\n",
                  what.c_str(),
                  1e3 * took.seconds,
                  took.seconds / base.seconds,
                  took.cpu_seconds / base.cpu_seconds);
    };
    std::printf("rank %lld, 8 sequences\n", static_cast<long long>(rank));
    for (const auto& [kinds, best] : decode) {
      line(std::to_string(kinds) + " adapters", best, decode[0]);
    }
    const Best apart{.seconds = 8 * alone.seconds, .cpu_seconds = 8 * alone.cpu_seconds};
    line("8 merged models, one after the other", apart, decode[0]);
    line("prefill of 128, none", prefill[-1], prefill[-1]);
    line("prefill of 128, an adapter", prefill[0], prefill[-1]);
  }

  void make_adapters(std::int64_t rank) {
    Rng rng(static_cast<std::uint64_t>(rank));
    const store::TestTensors shapes = projections(model_);
    adapters_.clear();
    for (int i = 0; i < kTogether; ++i) {
      const std::filesystem::path directory =
          directory_.path() / (std::to_string(rank) + "-" + std::to_string(i));
      store::random_adapter(shapes, rng, rank).write(directory);
      auto opened = store::Adapter::open(directory, model_, spec::DType::kBf16);
      HEDDLE_CHECK(opened.has_value());
      adapters_.push_back(std::make_shared<const store::Adapter>(std::move(*opened)));
    }
  }

  policy::SequenceId add(std::int64_t tokens, int adapter) {
    const policy::SequenceId id{++last_id_};
    engine::SequenceStart start{.id = id, .model = kModel, .prompt_tokens = tokens};
    Rng rng(last_id_);
    for (std::int64_t i = 0; i < tokens; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(model_.vocab))));
    }
    start.params.temperature = 0.0F;
    start.params.max_tokens = 1000;
    start.params.ignore_eos = true;
    start.adapter = adapter < 0 ? nullptr : adapters_[static_cast<std::size_t>(adapter)];
    HEDDLE_CHECK(engine_->add_sequence(std::move(start)).has_value());
    return id;
  }

  void step(const std::vector<policy::StepSlice>& slices) {
    const auto outcome = engine_->run({.batches = {{.model = kModel, .slices = slices}}}).value();
    HEDDLE_CHECK(outcome.results.size() == slices.size());
  }

  spec::ModelSpec model_ = llama_160m();
  store::ImageLayout layout_;
  CpuBed bed_;
  std::unique_ptr<engine::Engine> engine_;
  TempDirectory directory_{};
  std::vector<std::shared_ptr<const store::Adapter>> adapters_{};
  std::uint64_t last_id_ = 0;
};

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::Bench bench(heddle::bench::cores_from(argc > 1 ? argv[1] : nullptr));
  for (const std::int64_t rank : {8, 16, 64}) {
    bench.run(rank);
  }
  return 0;
}
