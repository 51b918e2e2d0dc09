// A whole model beside what the machine could do at best, all in one run: a Llama of 1.04e9
// parameters with random weights, in its engine, without sockets and files.
//
//   products  the matrix products of a pass of 512 tokens, each by the better of ours and oneDNN:
//             the ceiling of prefill
//   read      a loop that only reads as many bytes as the weights have: the ceiling of decode
//
//   cpu_model [bfloat16|int8|Q8_0|Q4_0|...] [CORE,CORE,...]     (default: all cores that this
//   process may use)
//
// The products that int8 and blocks are held against are those of bfloat16.
//
// Ceilings and engine are measured in turns, and the best of all rounds counts for each: on a
// shared machine no long stretch is quiet.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "bench/cpu_bed.h"
#include "bench/cpu_ceilings.h"
#include "device/cpu/cpu_stream.h"
#include "engine/engine.h"
#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "ops/linear.h"
#include "spec/block_panels.h"
#include "store/image_layout.h"

namespace heddle {
namespace {

using namespace bench;

constexpr std::int64_t kKvPages = 160;
constexpr std::int64_t kPrompt = 512;
constexpr std::int64_t kTogether = 8;
constexpr int kRounds = 7;
constexpr memory::OwnerId kKvLease{2};
constexpr ModelId kModel{1};

/// What tools/random_model.py makes; with matrices of those blocks, if they are.
spec::ModelSpec llama_1b(spec::DType dtype) {
  spec::ModelSpec model{.hidden = 2048,
                        .layers = 16,
                        .heads = 32,
                        .kv_heads = 8,
                        .head_dim = 64,
                        .intermediate = 8192,
                        .vocab = 32000,
                        .max_position = 8192,
                        .rms_eps = 1e-5,
                        .rope_theta = 500000.0,
                        .tied_embeddings = true,
                        .window = std::vector<std::int64_t>(16, 0)};
  if (spec::is_blocks(dtype)) {
    model.formats.assign(spec::format_count(model.layers), dtype);
  }
  return model;
}

class Bench {
 public:
  Bench(spec::DType dtype, const std::vector<int>& cores)
      : model_(llama_1b(dtype)),
        layout_(store::plan_image(model_, spec::is_blocks(dtype) ? spec::DType::kStored : dtype)),
        bed_(layout_, kKvPages, cores),
        engine_(engine::Engine::create(bed_.device(), bed_.pool()).value()),
        stream_(device::ThreadPool::create(cores).value(), 0) {
    HEDDLE_CHECK(engine_->add_model(kModel, model_, layout_, bed_.image(), kKvLease).has_value());
    engine_->set_image_ready(kModel, layout_.bytes);
    std::printf("%s, %zu threads, kernels %s, %.2f GB of weights\n",
                spec::dtype_name(dtype).data(),
                cores.size(),
                ops::cpu::simd_kernels().name,
                static_cast<double>(layout_.bytes) / 1e9);
  }

  void run() {
    prefill();
    decode();
  }

 private:
  struct Product {
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
    std::byte* weights = nullptr;
    Best best{};
  };

  /// The products of the first layer, which stand for those of all.
  std::vector<Product> products() {
    std::vector<Product> result;
    std::int64_t offset = 0;
    for (const store::ImageTensor& tensor : layout_.tensors) {
      if (tensor.layer == 0 && tensor.columns > 1) {
        result.push_back({.outputs = tensor.rows,
                          .inputs = tensor.columns,
                          .weights = products_.data() + offset});
        offset += tensor.rows * tensor.columns * 2;
      }
    }
    return result;
  }

  void measure(Product& p) {
    ops::OpContext context{.stream = stream_, .kernels = ops::cpu::cpu_kernels()};
    using spec::DType;
    p.best.take([&] {
      ops::linear(
          context,
          {.x = ops::tensor_2d<const std::byte>(x_.data(), DType::kBf16, kPrompt, p.inputs),
           .weight = ops::tensor_2d<const std::byte>(p.weights, DType::kBf16, p.outputs, p.inputs),
           .out = ops::matrix_of(reinterpret_cast<float*>(out_.data()), kPrompt, p.outputs)});
      HEDDLE_CHECK(stream_.synchronize().has_value());
    });
#ifdef HEDDLE_BENCH_DNNL
    p.best.take([&] {
      dnnl_linear(stream_.pool(), kPrompt, p.outputs, p.inputs, x_.data(), p.weights, out_.data());
    });
#endif
  }

  /// Adds a sequence of `tokens` tokens; prefill samples its first answer.
  policy::SequenceId add(std::int64_t tokens) {
    const policy::SequenceId id{++last_id_};
    engine::SequenceStart start{.id = id, .model = kModel, .prompt_tokens = tokens};
    Rng rng(last_id_);
    for (std::int64_t i = 0; i < tokens; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(model_.vocab))));
    }
    start.params.temperature = 0.0F;
    start.params.max_tokens = 1000;
    HEDDLE_CHECK(engine_->add_sequence(std::move(start)).has_value());
    return id;
  }

  void step(const std::vector<policy::StepSlice>& slices) {
    const auto outcome = engine_->run({.batches = {{.model = kModel, .slices = slices}}}).value();
    HEDDLE_CHECK(outcome.results.size() == slices.size());
  }

  void prefill() {
    auto all = products();
    Best best;
    for (int round = 0; round < kRounds; ++round) {
      const auto id = add(kPrompt);
      best.take([&] { step({{.sequence = id, .tokens = kPrompt}}); });
      engine_->remove_sequence(id);
      for (Product& product : all) {
        measure(product);
      }
    }
    Best ceiling{.seconds = 0.0, .cpu_seconds = 0.0};
    for (const Product& p : all) {
      const double flop = 2e-9 * static_cast<double>(kPrompt * p.outputs * p.inputs);
      std::printf("product 512 x %5lld x %4lld %8.1f GFLOP/s\n",
                  static_cast<long long>(p.outputs),
                  static_cast<long long>(p.inputs),
                  flop / p.best.seconds);
      ceiling.seconds += p.best.seconds * static_cast<double>(model_.layers);
      ceiling.cpu_seconds += p.best.cpu_seconds * static_cast<double>(model_.layers);
    }
    report("prefill of 512", best, "products alone", ceiling);
  }

  static void report(const char* what, const Best& took, const char* least, const Best& ceiling) {
    std::printf("%s %7.1f ms, %s %7.1f ms = %5.1f %%; by processor time %5.1f %%\n",
                what,
                1e3 * took.seconds,
                least,
                1e3 * ceiling.seconds,
                100.0 * ceiling.seconds / took.seconds,
                100.0 * ceiling.cpu_seconds / took.cpu_seconds);
  }

  void decode() {
    std::vector<policy::SequenceId> ids;
    for (std::int64_t i = 0; i < kTogether; ++i) {
      ids.push_back(add(16));
      step({{.sequence = ids.back(), .tokens = 16}});
    }
    std::vector<policy::StepSlice> together;
    for (const auto id : ids) {
      together.push_back({.sequence = id, .tokens = 1});
    }
    Best reading;
    Best alone;
    Best batched;
    for (int round = 0; round < 2 * kRounds; ++round) {
      reading.take([&] {
        stream_.pool().parallel_for(
            static_cast<std::int64_t>(layout_.bytes), 1 << 18, [&](auto begin, auto end, int) {
              read_all(bed_.image(), begin, end);
            });
      });
      alone.take([&] { step({together[0]}); });
      batched.take([&] { step(together); });
    }
    report("decode of a token", alone, "reading alone", reading);
    std::printf(
        "%lld sequences together %7.1f ms: %5.2f times the tokens of one; by processor time "
        "%5.2f\n",
        static_cast<long long>(kTogether),
        1e3 * batched.seconds,
        static_cast<double>(kTogether) * alone.seconds / batched.seconds,
        static_cast<double>(kTogether) * alone.cpu_seconds / batched.cpu_seconds);
  }

  spec::ModelSpec model_;
  store::ImageLayout layout_;
  CpuBed bed_;
  std::unique_ptr<engine::Engine> engine_;
  device::CpuStream stream_;
  std::uint64_t last_id_ = 0;
  Memory products_{16384LL * 8192};  ///< bfloat16 weights of a layer's products.
  Memory x_{kPrompt * 8192 * 2};
  Memory out_{kPrompt * 16384 * 4};
};

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  const heddle::spec::DType dtype = heddle::bench::dtype_from(argc, argv);
  heddle::Bench(dtype, heddle::bench::cores_from(argc > 1 ? argv[1] : nullptr)).run();
  return 0;
}
