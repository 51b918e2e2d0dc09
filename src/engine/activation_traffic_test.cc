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

ops::KernelTable counting_kernels(std::int64_t narrow_from) {
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
    traffic.projections += 2 * bytes_of(args.query) + bytes_of(args.key) + bytes_of(args.value);
  };
  table.attention = [](device::Stream& /*stream*/, const ops::AttentionArgs& args) {
    traffic.projections += bytes_of(args.query);
    traffic.others += bytes_of(args.out);
  };
  table.silu_mul = [](device::Stream& /*stream*/, const ops::SiluMulArgs& args) {
    traffic.projections += bytes_of(args.gate_up);
    traffic.others += bytes_of(args.out);
  };
  table.rope_normalises = true;
  table.wait = [](device::Stream& /*stream*/, const ops::WaitArgs& /*args*/) {};
  table.narrow_from = narrow_from;
  return table;
}

Traffic traffic_of_prefill(std::int64_t narrow_from) {
  TestHost host(128, 4096);
  const LoadedModel model = host.load(golden_directory() / "mistral-plain", spec::DType::kBf16);
  DecoderRig rig(host, model, all_layers(model.spec));
  const ops::KernelTable kernels = counting_kernels(narrow_from);
  rig.use(kernels);
  const std::vector<TokenId> ids(32, TokenId{1});
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(model.spec.hidden));
  SequenceKv sequence = rig.kv().make_sequence();
  traffic = {};
  rig.run(ids, 0, sequence, all_layers(model.spec), hidden);
  return traffic;
}

TEST(ActivationTraffic, ProjectionsTakeHalfTheBytesWhereTheyAreNarrow) {
  const Traffic wide = traffic_of_prefill(0);
  const Traffic narrow = traffic_of_prefill(9);
  EXPECT_EQ(2 * narrow.projections, wide.projections);
  EXPECT_EQ(narrow.others, wide.others);
  RecordProperty("wide", std::to_string(wide.projections + wide.others));
  RecordProperty("narrow", std::to_string(narrow.projections + narrow.others));
  const Traffic few = traffic_of_prefill(33);
  EXPECT_EQ(few.projections, wide.projections) << "of few tokens they stay what they are";
}

}  // namespace
}  // namespace heddle::engine
