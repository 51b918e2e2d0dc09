#include "agent/host_model.h"

#include <gtest/gtest.h>

#include "agent/image_job.h"
#include "base/test_places.h"
#include "spec/pipe_stage.h"
#include "store/test_files.h"

namespace heddle::agent {
namespace {

constexpr HostGeometry kGeometry{.page_bytes = std::size_t{64} << 10U, .max_batch_tokens = 64};

TEST(HostModel, KnowsWhatAModelNeeds) {
  const auto model =
      open_host_model("tests/golden/qwen3-window", places::kSources, spec::DType::kF32, kGeometry);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->directory,
            std::filesystem::path(places::kSources) / "tests/golden/qwen3-window");
  const auto pages = static_cast<std::uint64_t>(model->footprint.image_pages);
  EXPECT_GE(pages * kGeometry.page_bytes, model->image_bytes);
  EXPECT_LT((pages - 1) * kGeometry.page_bytes, model->image_bytes);
  EXPECT_GT(model->footprint.overhead_pages, 0);
  ASSERT_EQ(model->footprint.kv.size(), 2U) << "one layer with a window, one without";
  EXPECT_GT(model->footprint.min_kv_pages, 0);

  EXPECT_EQ(model->footprint.graph_pages, 0) << "nothing is recorded";

  EXPECT_EQ(model->gpu_footprint.image_pages, model->footprint.image_pages);
  EXPECT_GT(model->gpu_footprint.overhead_pages, model->footprint.overhead_pages);
  EXPECT_GT(model->gpu_footprint.graph_pages, 0);

  const auto half =
      open_host_model("tests/golden/qwen3-window", places::kSources, spec::DType::kBf16, kGeometry);
  ASSERT_TRUE(half);
  EXPECT_LT(half->image_bytes, model->image_bytes);
}

TEST(HostModel, KvInInt8IsOfWholeModelsShardsAndStages) {
  const std::string name = "tests/golden/llama-gqa-sharded";
  const auto open = [&](spec::KvType kv) {
    return open_host_model(name, places::kSources, spec::DType::kBf16, kGeometry, kv).value();
  };
  const HostModel wide = open(spec::KvType::kComputed);
  const HostModel narrow = open(spec::KvType::kI8);
  EXPECT_EQ(narrow.spec.kv, spec::KvType::kI8);
  EXPECT_EQ(narrow.image_bytes, wide.image_bytes);
  const auto tokens = [](const HostModel& model) {
    return model.footprint.kv[0].tokens_per_block * model.footprint.kv[0].blocks_per_page;
  };
  EXPECT_GT(tokens(narrow) * 10, tokens(wide) * 15);
  const auto shards = open_host_shards(
      name, places::kSources, spec::DType::kBf16, kGeometry, 2, {}, spec::KvType::kI8);
  const auto stages =
      open_host_stages(name, places::kSources, spec::DType::kBf16, kGeometry, 2, spec::KvType::kI8);
  ASSERT_TRUE(shards && stages);
  for (const auto* parts : {&*shards, &*stages}) {
    for (const HostModel& part : *parts) {
      EXPECT_EQ(part.spec.kv, spec::KvType::kI8);
    }
  }
}

TEST(HostModel, StagesAreModelsThatNeedTheirOwn) {
  const auto open = [](std::int64_t stages) {
    return open_host_stages(
        "tests/golden/qwen3-window", places::kSources, spec::DType::kF32, kGeometry, stages);
  };
  const auto whole = open(1);
  const auto stages = open(2);
  ASSERT_TRUE(whole && stages);
  ASSERT_EQ(stages->size(), 2U);
  EXPECT_EQ(spec::stages_of((*stages)[1].spec), 2);
  EXPECT_EQ((*stages)[1].spec.stage.index, 1);
  const auto bytes = [&](std::size_t i) { return (*stages)[i].image_bytes; };
  EXPECT_NEAR(static_cast<double>(bytes(0) + bytes(1)),
              static_cast<double>(whole->front().image_bytes),
              256.0)
      << "but for alignment";
  EXPECT_LT((*stages)[1].footprint.image_pages, whole->front().footprint.image_pages);
  EXPECT_EQ((*stages)[0].gpu_footprint.graph_pages, 0) << "their steps are not recorded";
  const auto many = open(64);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, Code::kInvalidArgument);
}

TEST(HostModel, OfExpertsThatTakeTurnsADeviceHasFewerPages) {
  const auto open = [](const char* name, double resident) {
    constexpr HostGeometry kSmall{.page_bytes = 4096, .max_batch_tokens = 64};
    return open_host_shards(std::string("tests/golden/") + name,
                            places::kSources,
                            spec::DType::kF32,
                            kSmall,
                            1,
                            {.experts_resident = resident});
  };
  const auto whole = open("qwen3-moe", 1.0);
  const auto half = open("qwen3-moe", 0.5);
  ASSERT_TRUE(whole && half);
  const HostModel& all = whole->front();
  const HostModel& some = half->front();
  EXPECT_EQ(all.spec.experts.slots, 0);
  EXPECT_EQ(all.host_pages, 0);
  EXPECT_EQ(some.spec.experts.slots, some.spec.experts.count * some.spec.layers / 2);
  EXPECT_LT(some.footprint.image_pages, all.footprint.image_pages);
  EXPECT_GE(some.host_pages, all.footprint.image_pages);
  EXPECT_EQ(some.gpu_footprint.image_pages, some.host_pages);
  const auto read = open_image(image_job(ModelId{1}, some, 4096));
  ASSERT_TRUE(read);
  EXPECT_LT(read->layout.resident_bytes, read->layout.bytes) << "experts lie behind all else";
  EXPECT_EQ(open("qwen3-moe", 0)->front().spec.experts.slots, 1);
  const auto none = open("qwen3-window", 0.5);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("it has none"), std::string::npos) << none.error().message;
}

/// A model whose layers' matrices are FP8, with a scale by row.
void write_f8_model(const std::filesystem::path& directory) {
  spec::ModelSpec model = store::tiny_model();
  model.hidden = 128;
  model.head_dim = 32;
  model.intermediate = 256;
  Rng rng(3);
  store::TestTensors tensors =
      store::random_model(model, rng, [](auto) { return store::StoredType::kF32; });
  store::TestTensors scales;
  for (auto& [name, tensor] : tensors) {
    if (tensor.shape.size() == 2 && name.starts_with("model.layers.")) {
      tensor.type = store::StoredType::kF8E4M3;
      tensor.data.assign(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]), '\x38');
      scales[name + "_scale"] = {
          .shape = {tensor.shape[0], 1},
          .data = std::string(static_cast<std::size_t>(tensor.shape[0]) * 4, '\x3c')};
    }
  }
  tensors.merge(scales);
  store::write_safetensors(directory / "model.safetensors", tensors);
  store::write_text(directory / "config.json",
                    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 50,
      "max_position_embeddings": 128, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
      "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}})");
}

TEST(HostModel, KeepsFp8WhereItsHostDoes) {
  const store::TempDirectory directory;
  write_f8_model(directory.path());
  HostGeometry geometry = kGeometry;
  const auto plain =
      open_host_model(directory.path().string(), "/", spec::DType::kStored, geometry);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->dtype, spec::DType::kBf16);
  EXPECT_TRUE(plain->spec.formats.empty());
  geometry.keeps_f8 = true;
  const auto kept = open_host_model(directory.path().string(), "/", spec::DType::kStored, geometry);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(kept->dtype, spec::DType::kStored);
  EXPECT_LT(kept->image_bytes, plain->image_bytes * 6 / 10);
  // A scale by row, and inputs that were to be FP8: so are all matrices of layers.
  EXPECT_EQ(std::ranges::count(kept->spec.formats, spec::DType::kF8Both), 2 * 7);
  const auto decoded =
      open_host_model(directory.path().string(), "/", spec::DType::kBf16, geometry);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->image_bytes, plain->image_bytes);
}

TEST(HostModel, NamesWhatIsMissing) {
  const auto missing = open_host_model("no/such", places::kSources, spec::DType::kF32, kGeometry);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find("no/such"), std::string::npos);
}

TEST(HostModel, AStepFitsTheDevice) {
  const std::vector<std::string> sources = {"tests/golden/qwen3-window", "no/such"};
  const auto tokens = [&](std::uint64_t bytes) {
    return choose_batch_tokens(sources, places::kSources, device::Kind::kCpu, bytes, 512);
  };
  EXPECT_EQ(tokens(std::uint64_t{1} << 40U), 512);
  EXPECT_EQ(tokens(1), 16);
  EXPECT_LE(tokens(std::uint64_t{1} << 20U), tokens(std::uint64_t{4} << 20U));
}

}  // namespace
}  // namespace heddle::agent
