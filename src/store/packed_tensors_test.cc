// Checkpoints with packed matrices: what they become, and what is wrong with them.

#include "store/packed_tensors.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/block_panels.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "store/convert.h"
#include "store/image_loader.h"
#include "store/read_order.h"
#include "store/test_files.h"
#include "store/test_image.h"
#include "store/test_packed.h"

namespace heddle::store {
namespace {

using spec::DType;
using spec::Packing;
using spec::Quantisation;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Quantisation kAwq = {.packing = Packing::kAwq, .bits = 4, .group = 32};
constexpr Quantisation kGptq = {
    .packing = Packing::kGptq, .bits = 4, .group = 32, .symmetric = true, .zero_offset = 1};

/// A model whose widths are whole blocks.
spec::ModelSpec model_of_blocks() {
  spec::ModelSpec model = tiny_model();
  model.hidden = 64;
  model.head_dim = 16;
  model.intermediate = 96;
  return model;
}

std::string config_of(const std::string& quantisation) {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 50, "max_position_embeddings": 128,
      "torch_dtype": "float16", "tie_word_embeddings": false, "quantization_config": )" +
         quantisation + "}";
}

constexpr const char* kAwqConfig = R"({"quant_method": "awq", "bits": 4, "group_size": 32})";
constexpr const char* kGptqConfig =
    R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true})";

class PackedTensorsTest : public testing::Test {
 protected:
  /// Stores the matrices of layers so, and the same numbers plainly beside.
  void make(const Quantisation& how, const spec::ModelSpec& model = model_of_blocks()) {
    plain_ = random_model(model, rng_, [](auto) { return StoredType::kF32; });
    for (auto& [name, tensor] : plain_) {
      const std::size_t ending = name.rfind(".weight");
      const bool router = name.ends_with("mlp.gate.weight");
      if (tensor.shape.size() != 2 || !name.starts_with("model.layers.") || router) {
        packed_.emplace(name, tensor);
        continue;
      }
      const TestPacked matrix = random_packed(how, tensor.shape[0], tensor.shape[1], rng_);
      for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
        const float value = matrix.value(i / matrix.columns, i % matrix.columns);
        std::memcpy(tensor.data.data() + i * 4, &value, sizeof(value));
      }
      for (auto& [part, made] : tensors_of(matrix)) {
        packed_.emplace(name.substr(0, ending + 1) + part, std::move(made));
      }
    }
  }

  Result<Checkpoint> open(const std::string& config) {
    write_text(directory_.path() / "config.json", config_of(config));
    write_safetensors(directory_.path() / "model.safetensors", packed_);
    return Checkpoint::open(directory_.path());
  }
  std::string error_of(const std::string& config) {
    const Result<Checkpoint> opened = open(config);
    EXPECT_FALSE(opened.has_value());
    return opened ? "" : opened.error().message;
  }
  Checkpoint opened(const std::string& config) {
    Result<Checkpoint> checkpoint = open(config);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    return std::move(checkpoint).value();
  }
  Checkpoint opened_plain() {
    write_text(directory_.path() / "plain/config.json", config_of("null"));
    write_safetensors(directory_.path() / "plain/model.safetensors", plain_);
    return Checkpoint::open(directory_.path() / "plain").value();
  }

  Rng rng_{11};
  TempDirectory directory_{};
  TestTensors plain_{};
  TestTensors packed_{};
};

TEST_F(PackedTensorsTest, AwqIsServedInBlocksOfItsNumbers) {
  make(kAwq);
  const Checkpoint packed = opened(kAwqConfig);
  EXPECT_THAT(packed.unused, IsEmpty());
  const spec::ModelSpec& model = packed.config.model;
  EXPECT_EQ(model.formats.at(spec::format_index(spec::Matrix::kDown, 1)), DType::kQ41);
  EXPECT_EQ(model.formats.at(spec::format_index(spec::Matrix::kHead, 0)), DType::kBf16);
  const ImageLayout stored = plan_image(model, DType::kStored);
  EXPECT_LT(stored.bytes, plan_image(model, DType::kBf16).bytes / 2);
  EXPECT_EQ(image_of(packed.tensors, stored).size(), stored.bytes);
}

/// Each expert has matrices of its own there, and all of them are one in the image.
TEST_F(PackedTensorsTest, ExpertsAreServedInBlocksToo) {
  spec::ModelSpec model = model_of_blocks();
  model.architecture = spec::Architecture::kQwen3Moe;
  model.qk_norm = true;
  model.intermediate = 0;
  model.experts = {.count = 3, .active = 2, .intermediate = 32};
  make(kGptq, model);
  const std::string experts = R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "vocab_size": 50,
      "quantization_config": )";
  const auto open_as = [&](const std::string& folder, const std::string& quantisation) {
    write_text(directory_.path() / folder / "config.json", experts + quantisation + "}");
    write_safetensors(directory_.path() / folder / "model.safetensors",
                      quantisation == "null" ? plain_ : packed_);
    return Checkpoint::open(directory_.path() / folder).value();
  };
  const Checkpoint packed = open_as("packed", kGptqConfig);
  const Checkpoint plain = open_as("plain", "null");
  for (const spec::Matrix matrix :
       {spec::Matrix::kExpertsGate, spec::Matrix::kExpertsUp, spec::Matrix::kExpertsDown}) {
    EXPECT_EQ(packed.config.model.formats.at(spec::format_index(matrix, 1)), DType::kQ40);
  }
  const ImageLayout float32 = plan_image(plain.config.model, DType::kF32);
  EXPECT_EQ(image_of(packed.tensors, float32), image_of(plain.tensors, float32));
  const ImageLayout stored = plan_image(packed.config.model, DType::kStored);
  EXPECT_EQ(image_of(packed.tensors, stored).size(), stored.bytes);
}

/// Symmetric numbers are the same in float32, in bfloat16 and in blocks.
TEST_F(PackedTensorsTest, SymmetricNumbersAreThoseOfAPlainModel) {
  for (const auto& [how, config] :
       {std::pair{kGptq, std::string(kGptqConfig)},
        std::pair{Quantisation{.packing = Packing::kPacked, .bits = 4, .symmetric = true},
                  std::string(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                      "config_groups": {"group_0": {"weights": {"num_bits": 4,
                      "strategy": "channel"}}}})")}}) {
    packed_.clear();
    make(how);
    const Checkpoint packed = opened(config);
    const Checkpoint plain = opened_plain();
    EXPECT_EQ(packed.config.model.formats.at(spec::format_index(spec::Matrix::kQ, 0)), DType::kQ40);
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
      const ImageLayout layout = plan_image(plain.config.model, dtype);
      EXPECT_EQ(image_of(packed.tensors, layout), image_of(plain.tensors, layout))
          << spec::dtype_name(dtype);
    }
  }
}

TEST_F(PackedTensorsTest, ShardsHaveTheirPart) {
  make(kGptq);
  const Checkpoint packed = opened(kGptqConfig);
  const Checkpoint plain = opened_plain();
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const spec::ModelSpec part = spec::shard_of(plain.config.model, {.rank = rank, .ranks = 2});
    const ImageLayout layout = plan_image(part, DType::kBf16);
    EXPECT_EQ(image_of(packed.tensors, layout), image_of(plain.tensors, layout)) << rank;
  }
}

/// Whoever brings the files is asked for nothing that was not announced.
TEST_F(PackedTensorsTest, WhatIsReadIsWhatIsAnnounced) {
  make(Quantisation{.packing = Packing::kPacked, .bits = 4, .group = 32});
  const Checkpoint packed =
      opened(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "strategy": "group",
          "group_size": 32, "symmetric": false}}}})");
  const ImageLayout layout = plan_image(packed.config.model, DType::kStored);
  const std::vector<FileBytes> order = read_order(packed.tensors, layout);
  std::string bytes(pages_for(layout.bytes, 1 << 16) << 16U, '?');
  std::vector<std::byte*> pages;
  for (std::size_t at = 0; at < bytes.size(); at += 1 << 16) {
    pages.push_back(reinterpret_cast<std::byte*>(bytes.data()) + at);
  }
  std::size_t asked = 0;
  const auto await = [&](std::size_t file, std::uint64_t begin, std::uint64_t size) {
    ++asked;
    EXPECT_TRUE(std::ranges::any_of(order, [&](const FileBytes& range) {
      return range.file == file && range.begin <= begin && begin + size <= range.end;
    })) << begin;
    return Result<void>();
  };
  EXPECT_TRUE(load_image(
      packed.tensors, layout, {.pages = pages, .page_bytes = 1 << 16}, {.await = await}));
  EXPECT_GT(asked, 14U);
}

TEST_F(PackedTensorsTest, Fp8IsItsNumbersTimesTheirScales) {
  make(kGptq);
  packed_ = plain_;
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // [64, 96]
  TestTensor& matrix = packed_.at(name);
  matrix.type = StoredType::kF8E4M3;
  matrix.data.assign(64 * 96, '\x38');  // 1.0
  matrix.data[0] = '\xBC';              // -1.5
  matrix.data[96 * 32 + 64] = '\x7E';   // 448
  matrix.data[95] = '\x01';             // 2^-9
  const auto floats = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  const auto value = [&](const Checkpoint& checkpoint, std::size_t row, std::size_t column) {
    const ImageLayout layout = plan_image(checkpoint.config.model, DType::kF32);
    const std::string image = image_of(checkpoint.tensors, layout);
    const auto* down = std::ranges::find(layout.tensors, Role::kDown, &ImageTensor::role).base();
    float number = 0;
    std::memcpy(&number, image.data() + down->offset + (row * 96 + column) * 4, 4);
    return number;
  };

  packed_["model.layers.0.mlp.down_proj.weight_scale_inv"] = {.shape = {2, 2},
                                                              .data = floats({2, 4, 0.5F, 8})};
  packed_["model.layers.0.mlp.down_proj.input_scale"] = {.shape = {1}, .data = floats({3})};
  const Checkpoint blocks = opened(R"({"quant_method": "fp8", "weight_block_size": [32, 64]})");
  EXPECT_THAT(blocks.unused, IsEmpty());
  EXPECT_TRUE(blocks.config.model.formats.empty()) << "computed with as bfloat16";
  EXPECT_EQ(value(blocks, 0, 0), -3.0F);
  EXPECT_EQ(value(blocks, 0, 95), 4.0F * 0x1p-9F);
  EXPECT_EQ(value(blocks, 32, 63), 0.5F);
  EXPECT_EQ(value(blocks, 32, 64), 3584.0F);
  EXPECT_EQ(value(blocks, 63, 95), 8.0F);

  packed_.erase("model.layers.0.mlp.down_proj.weight_scale_inv");
  packed_["model.layers.0.mlp.down_proj.weight_scale"] = {
      .shape = {64, 1}, .data = floats(std::vector<float>(64, 0.25F))};
  EXPECT_EQ(value(opened(R"({"quant_method": "fbgemm_fp8"})"), 0, 0), -0.375F);
  packed_["model.layers.0.mlp.down_proj.weight_scale"] = {.shape = {}, .data = floats({0.5F})};
  EXPECT_EQ(value(opened(R"({"quant_method": "fp8"})"), 0, 0), -0.75F);
  packed_["model.layers.0.mlp.down_proj.weight_scale"] = {.shape = {3}, .data = floats({1, 2, 3})};
  EXPECT_THAT(error_of(R"({"quant_method": "fp8"})"),
              HasSubstr("weight_scale\" is F32 [3], but it must be [64, 1]"));
  packed_.erase("model.layers.0.mlp.down_proj.weight_scale");
  EXPECT_THAT(error_of(R"({"quant_method": "fp8"})"),
              HasSubstr("down_proj.weight_scale\" is missing, which"));
}

// By the shape of the scales, and by what quantization_config says of inputs.
TEST_F(PackedTensorsTest, WhetherFp8IsOnBothSidesIsOfAMatrix) {
  constexpr std::size_t kOutputs = 64;
  constexpr std::size_t kInputs = 128;
  TestTensors tensors{{"a.weight",
                       {.type = StoredType::kF8E4M3,
                        .shape = {kOutputs, kInputs},
                        .data = std::string(kOutputs * kInputs, '\x38')}}};
  const auto both = [&](const std::vector<std::int64_t>& scales, bool f8_inputs) {
    std::int64_t count = 1;
    for (const std::int64_t side : scales) {
      count *= side;
    }
    tensors["a.weight_scale"] = {.shape = scales,
                                 .data = std::string(static_cast<std::size_t>(count) * 4, '\x3c')};
    const TempDirectory directory;
    write_safetensors(directory.path() / "model.safetensors", tensors);
    Result<TensorSet> set = TensorSet::open(directory.path());
    EXPECT_TRUE(set);
    EXPECT_TRUE(join_packed(*set,
                            {.packing = spec::Packing::kScaled,
                             .block_rows = 32,
                             .block_columns = 128,
                             .f8_inputs = f8_inputs}));
    const TensorSet::Entry* entry = set->find("a.weight");
    return entry != nullptr && entry->packed != nullptr && entry->packed->f8_both();
  };
  EXPECT_TRUE(both({}, true)) << "one for all";
  EXPECT_TRUE(both({64, 1}, true)) << "one a row";
  EXPECT_FALSE(both({64, 1}, false)) << "inputs are taken as they are";
  EXPECT_FALSE(both({2, 1}, true)) << "one for each block";
}

TEST_F(PackedTensorsTest, BiasesBesideAllMatricesAreNoContradiction) {
  make(kGptq);
  packed_["model.layers.0.mlp.down_proj.bias"] = {.shape = {64}, .data = std::string(256, '\0')};
  const Checkpoint packed = opened(kGptqConfig);
  EXPECT_THAT(packed.unused, testing::ElementsAre("model.layers.0.mlp.down_proj.bias"));
}

TEST_F(PackedTensorsTest, WhatDoesNotFitIsNamed) {
  make(kAwq);
  const std::string q = "model.layers.1.self_attn.q_proj.";
  const TestTensors whole = packed_;
  const auto wrong = [&](const std::string& part, const TestTensor& tensor) {
    packed_ = whole;
    packed_[q + part] = tensor;
    return error_of(kAwqConfig);
  };
  packed_.erase(q + "scales");
  EXPECT_THAT(error_of(kAwqConfig),
              AllOf(HasSubstr("tensor \"" + q + "scales\" is missing, which \"" + q +
                              "qweight\" needs beside it"),
                    HasSubstr("model.safetensors")));
  EXPECT_THAT(wrong("scales", {.shape = {3, 64}, .data = std::string(768, '\0')}),
              HasSubstr("scales\" is F32 [3, 64], but it must be [2, 64] beside"));
  EXPECT_THAT(wrong("scales", {.shape = {128}, .data = std::string(512, '\0')}),
              HasSubstr("it must be a matrix"));
  EXPECT_THAT(wrong("qzeros", {.shape = {2, 8}, .data = std::string(64, '\0')}),
              HasSubstr("qzeros\" is F32 [2, 8], but it must be I32 or U32"));
  EXPECT_THAT(wrong("qweight",
                    {.type = StoredType::kI32, .shape = {64, 9}, .data = std::string(2304, '\0')}),
              HasSubstr("but it must be [2, 72] beside"));
  packed_ = whole;
  EXPECT_THAT(error_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 32})"),
              HasSubstr("beside \"model.layers.0.mlp.down_proj.qweight\""))
      << "of another method";
  EXPECT_THAT(error_of("null"), HasSubstr("is missing from")) << "and of none";
}

TEST_F(PackedTensorsTest, NumbersThatAreNotAsSymmetricAsTheySayAreNamed) {
  make(Quantisation{.packing = Packing::kGptq, .bits = 4, .group = 32, .zero_offset = 1});
  const Checkpoint packed = opened(kGptqConfig);
  const ImageLayout layout = plan_image(packed.config.model, DType::kStored);
  std::string bytes(pages_for(layout.bytes, 1 << 20) << 20U, '?');
  std::vector<std::byte*> pages = {reinterpret_cast<std::byte*>(bytes.data())};
  ASSERT_EQ(bytes.size(), 1U << 20U);
  const Result<void> loaded =
      load_image(packed.tensors, layout, {.pages = pages, .page_bytes = 1 << 20});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("symmetric numbers have 8"));
}

}  // namespace
}  // namespace heddle::store
