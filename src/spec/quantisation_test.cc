#include "spec/quantisation.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<Quantisation> parsed(const std::string& config) {
  return parse_quantisation("{\"hidden_size\": 8, \"quantization_config\": " + config + "}",
                            "config.json");
}
Quantisation read(const std::string& config) {
  const Result<Quantisation> result = parsed(config);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : Quantisation{};
}
std::string error_of(const std::string& config) {
  const Result<Quantisation> result = parsed(config);
  EXPECT_FALSE(result) << config;
  return result ? "" : result.error().message;
}

std::string compressed(const std::string& format, const std::string& weights) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
             "weights": )" +
         weights + "}}}";
}

TEST(Quantisation, WithoutOneMatricesArePlain) {
  EXPECT_EQ(parse_quantisation(R"({"hidden_size": 8})", "c")->packing, Packing::kNone);
  EXPECT_EQ(read("null").packing, Packing::kNone);
}

TEST(Quantisation, ReadsAwq) {
  const Quantisation awq = read(R"({"quant_method": "awq", "bits": 4, "group_size": 128,
      "zero_point": true, "version": "GEMM", "modules_to_not_convert": null})");
  EXPECT_EQ(awq.packing, Packing::kAwq);
  EXPECT_EQ(awq.bits, 4);
  EXPECT_EQ(awq.group, 128);
  EXPECT_FALSE(awq.symmetric);
  EXPECT_EQ(read(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64})").group, 64);
}

TEST(Quantisation, ReadsGptq) {
  const Quantisation gptq = read(R"({"quant_method": "gptq", "bits": 8, "group_size": -1,
      "sym": true, "desc_act": true, "dynamic": {}})");
  EXPECT_EQ(gptq.packing, Packing::kGptq);
  EXPECT_EQ(gptq.bits, 8);
  EXPECT_EQ(gptq.group, 0) << "all of a row";
  EXPECT_TRUE(gptq.symmetric && gptq.ordered);
  EXPECT_EQ(gptq.zero_offset, 1) << "of the first format";
  EXPECT_EQ(
      read(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"})").zero_offset,
      0);
}

TEST(Quantisation, ReadsCompressedTensors) {
  const Quantisation packed = read(compressed(
      "pack-quantized",
      R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": false,
          "actorder": null})"));
  EXPECT_EQ(packed.packing, Packing::kPacked);
  EXPECT_EQ(packed.group, 32);
  EXPECT_FALSE(packed.symmetric || packed.ordered);
  EXPECT_TRUE(read(compressed("pack-quantized", R"({"strategy": "channel", "actorder": "group"})"))
                  .ordered);
  EXPECT_FALSE(
      read(compressed("pack-quantized", R"({"strategy": "channel", "actorder": "weight"})"))
          .ordered)
      << "rounded in that order, and put back";
  EXPECT_EQ(
      read(compressed("float-quantized", R"({"num_bits": 8, "strategy": "channel"})")).packing,
      Packing::kScaled);
}

TEST(Quantisation, ReadsFp8) {
  const Quantisation blocks = read(
      R"({"quant_method": "fp8", "weight_block_size": [128, 64], "activation_scheme": "dynamic"})");
  EXPECT_EQ(blocks.packing, Packing::kScaled);
  EXPECT_EQ(blocks.block_rows, 128);
  EXPECT_EQ(blocks.block_columns, 64);
  EXPECT_EQ(read(R"({"quant_method": "fp8"})").block_rows, 0);
  EXPECT_EQ(read(R"({"quant_method": "modelopt", "quant_algo": "FP8"})").packing, Packing::kScaled);
}

TEST(Quantisation, ReadsWhetherInputsWereToBeFp8) {
  EXPECT_TRUE(read(R"({"quant_method": "fp8", "activation_scheme": "dynamic"})").f8_inputs);
  EXPECT_TRUE(read(R"({"quant_method": "fp8", "activation_scheme": "static"})").f8_inputs);
  EXPECT_FALSE(read(R"({"quant_method": "fp8"})").f8_inputs);
  EXPECT_TRUE(read(R"({"quant_method": "fbgemm_fp8"})").f8_inputs);
  EXPECT_TRUE(read(R"({"quant_method": "modelopt", "quant_algo": "FP8"})").f8_inputs);
  const auto of_inputs = [](const std::string& inputs) {
    return read(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
                    "config_groups": {"group_0": {"weights": {"strategy": "channel"},
                                                  "input_activations": )" +
                inputs + "}}}")
        .f8_inputs;
  };
  EXPECT_TRUE(of_inputs(R"({"num_bits": 8, "type": "float", "dynamic": true})"));
  EXPECT_FALSE(of_inputs(R"({"num_bits": 8, "type": "int"})"));
  EXPECT_FALSE(of_inputs(R"({"num_bits": 4, "type": "float"})"));
  EXPECT_FALSE(of_inputs("null")) << "of weights alone";
}

TEST(Quantisation, ExpertsOfGptOssAreMxfp4) {
  EXPECT_EQ(read(R"({"quant_method": "mxfp4",
                     "modules_to_not_convert": ["model.layers.*.self_attn"]})")
                .packing,
            Packing::kMxfp4);
}

TEST(Quantisation, WhatIsNotBuiltInIsNamedWithAWayOut) {
  EXPECT_THAT(error_of(R"({"quant_method": "bitsandbytes"})"),
              AllOf(HasSubstr("config.json: quantization_config.quant_method is \"bitsandbytes\"; "
                              "awq, gptq, compressed-tensors"),
                    HasSubstr("another engine can serve this model")));
  EXPECT_THAT(error_of("{}"), HasSubstr("quantization_config.quant_method"));
  EXPECT_THAT(error_of("4"), HasSubstr("quantization_config"));
  EXPECT_THAT(error_of(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"),
              HasSubstr("modelopt of FP8"));
  EXPECT_THAT(error_of(R"({"quant_method": "gptq", "bits": 3})"),
              HasSubstr("quantization_config.bits is 3; 4 or 8 are built in"));
  EXPECT_THAT(error_of(R"({"quant_method": "gptq", "dynamic": {"-:.*mlp": {}}})"),
              HasSubstr("quantization_config.dynamic"));
  EXPECT_THAT(error_of(R"({"quant_method": "gptq", "checkpoint_format": "marlin"})"),
              HasSubstr("checkpoint_format is \"marlin\""));
  EXPECT_THAT(error_of(R"({"quant_method": "awq", "bits": 8})"), HasSubstr("AWQ is of 4 bits"));
  EXPECT_THAT(error_of(R"({"quant_method": "awq", "version": "gemv"})"),
              HasSubstr("version is \"gemv\""));
  EXPECT_THAT(error_of(R"({"quant_method": "fp8", "weight_block_size": [128]})"),
              HasSubstr("weight_block_size is an array of 1; it must be two positive integers"));
  EXPECT_THAT(error_of(R"({"quant_method": "fp8", "weight_block_size": [0, 8]})"),
              HasSubstr("two positive integers"));
  EXPECT_THAT(error_of(compressed("nvfp4-pack-quantized", "{}")),
              HasSubstr("format is \"nvfp4-pack-quantized\"; \"pack-quantized\""));
  EXPECT_THAT(error_of(compressed("pack-quantized", "null")), HasSubstr("group_0.weights"));
  EXPECT_THAT(error_of(compressed("pack-quantized", R"({"strategy": "block"})")),
              HasSubstr("config_groups.group_0.weights.strategy is \"block\""));
  EXPECT_THAT(error_of(compressed("pack-quantized", R"({"strategy": "group"})")),
              HasSubstr("group_size"));
  EXPECT_THAT(error_of(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                           "config_groups": {"a": {}, "b": {}}})"),
              HasSubstr("one group is built in"));
}

}  // namespace
}  // namespace heddle::spec
