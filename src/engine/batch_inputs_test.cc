#include "engine/batch_inputs.h"

#include <gtest/gtest.h>

#include "engine/decoder_rig.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

TEST(BatchInputs, LaysSlicesOutOneAfterTheOther) {
  TestHost host(64, 4096);
  const LoadedModel model =
      host.load(golden_directory() / "qwen2-window-types-new", spec::DType::kF32);
  const ImageGate gate;
  ModelKv kv(host.pool(),
             kKvLease,
             plan_kv(model.spec, all_layers(model.spec), spec::DType::kF32, 4096).value(),
             host.cached());
  const auto decoder = Decoder::create(
      model.spec, model.layout, model.window.base(), gate.watermark(), kv.plan(), nullptr);
  ASSERT_TRUE(decoder);
  SequenceKv a = kv.make_sequence();
  SequenceKv b = kv.make_sequence();
  ASSERT_TRUE(kv.grow(a, 60));
  ASSERT_TRUE(kv.grow(b, 2));
  kv.slide(a, 58);
  const std::vector<TokenId> of_a{11, 12};
  const std::vector<TokenId> of_b{21, 22};
  const std::vector<BatchSlice> slices{{.ids = of_a, .first_position = 58, .kv = &a},
                                       {.ids = of_b, .first_position = 0, .kv = &b}};
  const auto stream = host.device().create_stream().value();
  Mirror mirror(host.device());
  ops::OpContext context{.stream = *stream, .kernels = *ops::kernels_for(device::Kind::kCpu)};
  BatchInputs inputs;
  inputs.gather(slices, *decoder, kv, mirror);
  ASSERT_TRUE(mirror.send(context));
  const Batch batch = inputs.batch(mirror);
  ASSERT_TRUE(stream->synchronize());

  EXPECT_EQ(batch.tokens, 4);
  const auto values = [](const ops::ConstTensorRef& tensor, std::int64_t n) {
    return std::vector<std::int32_t>(tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + n);
  };
  EXPECT_EQ(values(inputs.ids(mirror), 4), (std::vector<std::int32_t>{11, 12, 21, 22}));
  EXPECT_EQ(values(batch.rows.begin, 3), (std::vector<std::int32_t>{0, 2, 4}));
  EXPECT_EQ(values(batch.rows.first_position, 2), (std::vector<std::int32_t>{58, 0}));
  ASSERT_EQ(batch.block_tables.size(), kv.plan().groups.size());
  for (std::size_t g = 0; g < kv.plan().groups.size(); ++g) {
    const auto width = static_cast<std::size_t>(batch.block_tables[g].shape[1]);
    const auto table = values(batch.block_tables[g], static_cast<std::int64_t>(2 * width));
    const SequenceKv::Group& own = a.groups()[g];
    ASSERT_EQ(width, own.blocks.size());
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_EQ(table[i], i < own.first_live ? -1 : kv.block_number(g, own.blocks[i]));
    }
    EXPECT_EQ(table[width], kv.block_number(g, b.groups()[g].blocks[0]));
  }
  std::vector<float> angles(static_cast<std::size_t>(model.spec.head_dim));
  rope_cos_sin(decoder->rope(spec::LayerRope::kModels)->frequencies(), 59, angles);
  EXPECT_EQ(std::vector<float>(batch.cos_sin[0].as<float>() + model.spec.head_dim,
                               batch.cos_sin[0].as<float>() + 2 * model.spec.head_dim),
            angles);
}

}  // namespace
}  // namespace heddle::engine
