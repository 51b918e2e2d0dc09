// How many bytes of activations a layer reads and writes, counted by kernels that do nothing else.

#include <cstdint>

#include <gtest/gtest.h>

#include "engine/decoder_rig.h"
#include "engine/test_host.h"
#include "ops/attention.h"
#include "ops/fused.h"
#include "ops/rope_append.h"
#include "ops/silu_mul.h"
#include "ops/wait.h"

namespace heddle::engine {
namespace {

/// Of the kernels, which have no state of their own [bytes].
struct Traffic {
  std::int64_t projections = 0;  ///< Of queries, keys, values, gates and ups.
  std::int64_t others = 0;

  [[nodiscard]] std::int64_t all() const { return projections + others; }
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
Traffic traffic;

std::int64_t bytes_of(const ops::ConstTensorRef& tensor) {
  std::int64_t bytes = ops::dtype_size(tensor.dtype);
  for (int i = 0; i < tensor.rank; ++i) {
    bytes *= tensor.shape[static_cast<std::size_t>(i)];
  }
  return bytes;
}

/// What a backend does beside the operations one by one.
struct Does {
  std::int64_t narrow_from = 0;
  bool turns = false;  ///< Attention turns queries.
  bool gates = false;  ///< Products of gates and ups gate at their end.
};

ops::KernelTable counting_kernels(const Does& does) {
  ops::KernelTable table{};
  table.rms_norm = [](device::Stream& /*stream*/, const ops::RmsNormArgs& args) {
    traffic.others += bytes_of(args.x) + bytes_of(args.out);
  };
  table.linear = [](device::Stream& /*stream*/, const ops::LinearArgs& args) {
    traffic.others += bytes_of(args.x);
    if (args.residual.present()) {
      traffic.others += bytes_of(args.residual) + bytes_of(args.out);
    } else {
      traffic.projections += bytes_of(args.out);
    }
  };
  table.rope_append = [](device::Stream& /*stream*/, const ops::RopeAppendArgs& args) {
    const std::int64_t queries = args.query.present() ? bytes_of(args.query) : 0;
    traffic.projections += 2 * queries + bytes_of(args.key) + bytes_of(args.value);
  };
  table.attention = [](device::Stream& /*stream*/, const ops::AttentionArgs& args) {
    traffic.projections += bytes_of(args.query);
    traffic.others += bytes_of(args.out);
  };
  table.silu_mul = [](device::Stream& /*stream*/, const ops::SiluMulArgs& args) {
    traffic.projections += bytes_of(args.gate_up);
    traffic.others += bytes_of(args.out);
  };
  if (does.turns) {
    table.attention_turns = [](const ops::AttentionArgs& args) {
      return args.query.dtype == spec::DType::kBf16;
    };
  }
  if (does.gates) {
    table.linear_silu = [](device::Stream& /*stream*/, const ops::LinearSiluArgs& args) {
      traffic.others += bytes_of(args.linear.x) + bytes_of(args.out);
      return true;
    };
  }
  table.rope_normalises = true;
  table.wait = [](device::Stream& /*stream*/, const ops::WaitArgs& /*args*/) {};
  table.narrow_from = does.narrow_from;
  return table;
}

Traffic traffic_of_prefill(const Does& does, const char* golden = "mistral-plain") {
  TestHost host(128, 4096);
  const LoadedModel model = host.load(golden_directory() / golden, spec::DType::kBf16);
  DecoderRig rig(host, model, all_layers(model.spec));
  const ops::KernelTable kernels = counting_kernels(does);
  rig.use(kernels);
  const std::vector<TokenId> ids(32, TokenId{1});
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(model.spec.hidden));
  SequenceKv sequence = rig.kv().make_sequence();
  traffic = {};
  rig.run(ids, 0, sequence, all_layers(model.spec), hidden);
  return traffic;
}

TEST(ActivationTraffic, ProjectionsTakeHalfTheBytesWhereTheyAreNarrow) {
  const Traffic wide = traffic_of_prefill({});
  const Traffic narrow = traffic_of_prefill({.narrow_from = 9});
  EXPECT_EQ(2 * narrow.projections, wide.projections);
  EXPECT_EQ(narrow.others, wide.others);
  const Traffic few = traffic_of_prefill({.narrow_from = 33});
  EXPECT_EQ(few.projections, wide.projections) << "of few tokens they stay what they are";
}

/// What decides how many bytes a layer takes.
struct Widths {
  std::int64_t hidden = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t intermediate = 0;

  /// Bytes of a token and layer, by how often each is read and written in how many bytes.
  [[nodiscard]] std::int64_t bytes(const Does& does) const {
    if (does.narrow_from == 0) {
      return 32 * hidden + 20 * queries + 16 * keys + 20 * intermediate;
    }
    return 32 * hidden + (does.turns ? 8 : 12) * queries + 8 * keys +
           (does.gates ? 4 : 12) * intermediate;
  }
};

constexpr Does kOneByOne{};
constexpr Does kTurned{.narrow_from = 9, .turns = true};
constexpr Does kTurnedAndGated{.narrow_from = 9, .turns = true, .gates = true};

TEST(ActivationTraffic, IsWhatTheWidthsOfAModelSay) {
  for (const char* golden : {"mistral-plain", "mistral-head-dim-32", "llama-head-dim-64"}) {
    SCOPED_TRACE(golden);
    TestHost host(128, 4096);
    const spec::ModelSpec model = host.load(golden_directory() / golden, spec::DType::kBf16).spec;
    const Widths widths{.hidden = model.hidden,
                        .queries = model.heads * model.head_dim,
                        .keys = model.kv_heads * model.head_dim,
                        .intermediate = model.intermediate};
    for (const Does& does : {kOneByOne, Does{.narrow_from = 9}, kTurned, kTurnedAndGated}) {
      EXPECT_EQ(traffic_of_prefill(does, golden).all(), 32 * model.layers * widths.bytes(does));
    }
  }
}

TEST(ActivationTraffic, ALayerOfAPrefillTakesLessThanHalfTheBytesOfOnePassForEachOperation) {
  const Widths llama_3_8b{.hidden = 4096, .queries = 4096, .keys = 1024, .intermediate = 14336};
  const std::int64_t base = llama_3_8b.bytes(kOneByOne);
  EXPECT_LE(100 * llama_3_8b.bytes(kTurnedAndGated), 45 * base);
  EXPECT_LE(100 * llama_3_8b.bytes(kTurned), 67 * base) << "where a library multiplies";
}

}  // namespace
}  // namespace heddle::engine
