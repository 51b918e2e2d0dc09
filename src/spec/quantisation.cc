#include "spec/quantisation.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "spec/json.h"
#include "spec/json_fields.h"

namespace heddle::spec {
namespace {

constexpr std::int64_t kGroupMax = 1 << 20;
constexpr std::string_view kAnother =
    "another engine can serve this model: configure it with `cmd:`";

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// -1, as files have it, is the whole row.
std::int64_t read_group(JsonFields& fields) {
  const std::int64_t group = fields.integer("group_size", {-1, kGroupMax}, 128);
  return std::max<std::int64_t>(0, group);
}

int read_bits(JsonFields& fields, std::string_view key, std::int64_t usual) {
  const std::int64_t bits = fields.integer(key, {1, 16}, usual);
  if (fields.ok() && bits != 4 && bits != 8) {
    fields.reject(key, fmt::format("4 or 8 are built in; {}", kAnother));
  }
  return static_cast<int>(bits);
}

Quantisation read_awq(JsonFields& fields) {
  Quantisation awq{.packing = Packing::kAwq};
  awq.bits = read_bits(fields, fields.has("bits") ? "bits" : "w_bit", 4);
  awq.group = fields.has("q_group_size") ? fields.integer("q_group_size", {1, kGroupMax})
                                         : read_group(fields);
  const std::string version = lower_case(fields.text("version"));
  if (awq.bits != 4) {
    fields.reject(fields.has("bits") ? "bits" : "w_bit", "AWQ is of 4 bits");
  }
  if (!version.empty() && version != "gemm") {
    fields.reject("version", fmt::format("the order of \"gemm\" is built in; {}", kAnother));
  }
  return awq;
}

Quantisation read_gptq(JsonFields& fields) {
  Quantisation gptq{.packing = Packing::kGptq};
  gptq.bits = read_bits(fields, "bits", 4);
  gptq.group = read_group(fields);
  gptq.symmetric = fields.boolean("sym", false);
  gptq.ordered = fields.boolean("desc_act", false);
  const std::string format = fields.text("checkpoint_format");
  if (!format.empty() && format != "gptq" && format != "gptq_v2") {
    fields.reject("checkpoint_format",
                  fmt::format("\"gptq\" and \"gptq_v2\" are built in; {}", kAnother));
  }
  gptq.zero_offset = format == "gptq_v2" ? 0 : 1;
  const Json* dynamic = fields.find("dynamic");
  const auto* rules = dynamic != nullptr ? dynamic->as<Json::Object>() : nullptr;
  if (dynamic != nullptr && (rules == nullptr || !rules->empty())) {
    fields.reject("dynamic", fmt::format("one rule for all layers is built in; {}", kAnother));
  }
  return gptq;
}

Quantisation read_scaled(JsonFields& fields) {
  Quantisation scaled{.packing = Packing::kScaled};
  const Json* size = fields.find("weight_block_size");
  if (size != nullptr) {
    const auto* both = size->as<Json::Array>();
    const auto at = [&](std::size_t i) {
      const auto* side = (*both)[i].as<std::int64_t>();
      return side != nullptr && *side >= 1 && *side <= kGroupMax ? *side : 0;
    };
    if (both == nullptr || both->size() != 2 || at(0) == 0 || at(1) == 0) {
      fields.reject("weight_block_size", "it must be two positive integers, outputs and inputs");
    } else {
      scaled.block_rows = at(0);
      scaled.block_columns = at(1);
    }
  }
  return scaled;
}

/// Whether a group of compressed-tensors has FP8 as inputs of its products.
bool has_f8_inputs(const Json& group) {
  const Json* inputs = group.find("input_activations");
  if (inputs == nullptr || inputs->as<Json::Object>() == nullptr) {
    return false;
  }
  const Json* bits = inputs->find("num_bits");
  const Json* type = inputs->find("type");
  const auto* count = bits != nullptr ? bits->as<std::int64_t>() : nullptr;
  const auto* kind = type != nullptr ? type->as<std::string>() : nullptr;
  return count != nullptr && *count == 8 && kind != nullptr && *kind == "float";
}

/// The weights of a group of compressed-tensors.
Quantisation read_weights(JsonFields& weights, std::string_view format) {
  const std::string strategy = weights.text("strategy");
  const std::string type = weights.text("type");
  if (format != "pack-quantized") {
    Quantisation scaled = {.packing = Packing::kScaled};
    if (strategy != "tensor" && strategy != "channel") {
      weights.reject(
          "strategy",
          fmt::format("of {} \"tensor\" and \"channel\" are built in; {}", format, kAnother));
    }
    if (!weights.boolean("symmetric", true)) {
      weights.reject("symmetric", fmt::format("of {} true is built in; {}", format, kAnother));
    }
    return scaled;
  }
  Quantisation packed{.packing = Packing::kPacked};
  packed.bits = read_bits(weights, "num_bits", 4);
  packed.symmetric = weights.boolean("symmetric", true);
  if (!type.empty() && type != "int") {
    weights.reject("type", fmt::format("of pack-quantized \"int\" is built in; {}", kAnother));
  }
  if (strategy == "group") {
    packed.group = weights.integer("group_size", {1, kGroupMax});
  } else if (strategy != "channel") {
    weights.reject("strategy", fmt::format("\"group\" and \"channel\" are built in; {}", kAnother));
  }
  const std::string order = lower_case(weights.text("actorder"));
  packed.ordered = order == "group" || order == "dynamic";
  return packed;
}

Quantisation read_compressed(JsonFields& fields, const std::string& where) {
  constexpr std::array<std::string_view, 4> kFormats = {
      "pack-quantized", "float-quantized", "int-quantized", "naive-quantized"};
  const std::string format = fields.text("format");
  if (std::ranges::find(kFormats, format) == kFormats.end()) {
    fields.reject("format",
                  fmt::format("\"{}\", \"{}\", \"{}\" and \"{}\" are built in; {}",
                              kFormats[0],
                              kFormats[1],
                              kFormats[2],
                              kFormats[3],
                              kAnother));
    return {};
  }
  const Json* groups = fields.find("config_groups");
  const auto* listed = groups != nullptr ? groups->as<Json::Object>() : nullptr;
  if (listed == nullptr || listed->size() != 1) {
    fields.reject("config_groups", fmt::format("one group is built in; {}", kAnother));
    return {};
  }
  const auto& [name, group] = *listed->begin();
  const Json* weights = group.find("weights");
  if (weights == nullptr || weights->as<Json::Object>() == nullptr) {
    fields.reject_as(
        fmt::format("config_groups.{}.weights", name), "absent", "it must be an object");
    return {};
  }
  JsonFields part(*weights, fmt::format("{}config_groups.{}.weights.", where, name));
  Quantisation read = read_weights(part, format);
  fields.adopt(part);
  read.f8_inputs = read.packing == Packing::kScaled && has_f8_inputs(group);
  return read;
}

Quantisation read_method(JsonFields& fields, const std::string& where) {
  const std::string method = fields.text("quant_method");
  if (method == "awq") {
    return read_awq(fields);
  }
  if (method == "gptq") {
    return read_gptq(fields);
  }
  if (method == "compressed-tensors") {
    return read_compressed(fields, where);
  }
  if (method == "fp8") {
    Quantisation scaled = read_scaled(fields);
    const std::string scheme = fields.text("activation_scheme");
    scaled.f8_inputs = scheme == "dynamic" || scheme == "static";
    return scaled;
  }
  // Both are of FP8 on both sides.
  if (method == "fbgemm_fp8" || (method == "modelopt" && fields.text("quant_algo") == "FP8")) {
    Quantisation scaled = read_scaled(fields);
    scaled.f8_inputs = true;
    return scaled;
  }
  if (method == "mxfp4") {
    return {.packing = Packing::kMxfp4};
  }
  fields.reject(
      "quant_method",
      fmt::format("awq, gptq, compressed-tensors, fp8, fbgemm_fp8, modelopt of FP8 and mxfp4 "
                  "are built in; {}",
                  kAnother));
  return {};
}

}  // namespace

Result<Quantisation> parse_quantisation(std::string_view text, std::string_view file) {
  const Result<Json> json = parse_json(text, file);
  if (!json) {
    return json.error();
  }
  JsonFields all(*json, fmt::format("{}: ", file));
  const Json* value = all.find("quantization_config");
  if (value == nullptr) {
    return all.ok() ? Result<Quantisation>(Quantisation{}) : all.status().error();
  }
  const std::string where = fmt::format("{}: quantization_config.", file);
  JsonFields fields(*value, where);
  const Quantisation read = fields.ok() ? read_method(fields, where) : Quantisation{};
  if (!fields.ok()) {
    return fields.status().error();
  }
  return read;
}

}  // namespace heddle::spec
