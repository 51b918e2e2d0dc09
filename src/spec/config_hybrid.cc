#include "spec/config_hybrid.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "spec/config_family.h"
#include "spec/json.h"

namespace heddle::spec {
namespace {

constexpr std::int64_t kStateHeadsMax = 1 << 12;
constexpr std::int64_t kStateDimMax = 256;
constexpr std::int64_t kKernelMax = 8;

/// Which layers are of linear attention, where `layer_types` does not say so.
std::vector<Mixer> all_but_every(std::int64_t interval, std::int64_t layers) {
  std::vector<Mixer> mixer;
  for (std::int64_t layer = 1; layer <= layers; ++layer) {
    mixer.push_back(layer % interval == 0 ? Mixer::kAttention : Mixer::kDeltaRule);
  }
  return mixer;
}

std::vector<Mixer> read_mixers(JsonFields& fields, const ModelSpec& model) {
  const std::int64_t interval = fields.integer("full_attention_interval", {1, kLayersMax}, 4);
  const Json* value = fields.find("layer_types");
  if (value == nullptr) {
    return all_but_every(interval, model.layers);
  }
  const std::string right = fmt::format(
      "it must be an array of num_hidden_layers ({}) times \"linear_attention\" or "
      "\"full_attention\"",
      model.layers);
  const auto* names = value->as<Json::Array>();
  if (names == nullptr || std::cmp_not_equal(names->size(), model.layers)) {
    fields.reject("layer_types", right);
    return {};
  }
  std::vector<Mixer> mixer;
  for (const Json& item : *names) {
    const auto* name = item.as<std::string>();
    if (name == nullptr || (*name != "linear_attention" && *name != "full_attention")) {
      fields.reject_as(fmt::format("layer_types[{}]", mixer.size()), describe(item), right);
      return {};
    }
    mixer.push_back(*name == "linear_attention" ? Mixer::kDeltaRule : Mixer::kAttention);
  }
  return mixer;
}

void read_sizes(JsonFields& fields, LinearAttention& linear) {
  linear.key_heads = fields.integer("linear_num_key_heads", {1, kStateHeadsMax}, 16);
  linear.value_heads = fields.integer("linear_num_value_heads", {1, kStateHeadsMax}, 32);
  linear.key_dim = fields.integer("linear_key_head_dim", {1, kStateDimMax}, 128);
  linear.value_dim = fields.integer("linear_value_head_dim", {1, kStateDimMax}, 128);
  linear.kernel = fields.integer("linear_conv_kernel_dim", {2, kKernelMax}, 4);
  if (fields.ok() && linear.value_heads % linear.key_heads != 0) {
    fields.reject("linear_num_value_heads",
                  fmt::format("it must be a multiple of linear_num_key_heads, which is {}",
                              linear.key_heads));
  }
}

}  // namespace

void read_hybrid(JsonFields& fields, bool attention_bias, ModelSpec& model) {
  model.qk_norm = true;
  model.norm_less_one = true;
  model.attention_gate = true;
  if (attention_bias) {
    fields.reject("attention_bias",
                  fmt::format("only gated attention without biases is built in; {}", kElsewhere));
  }
  if (!fields.boolean("attn_output_gate", true)) {
    fields.reject("attn_output_gate",
                  fmt::format("only gated attention is built in; {}", kElsewhere));
  }
  model.mixer = read_mixers(fields, model);
  if (fields.ok() && std::ranges::count(model.mixer, Mixer::kAttention) == 0) {
    fields.reject("layer_types",
                  fmt::format("a layer at least must be \"full_attention\"; {}", kElsewhere));
  }
  if (std::ranges::count(model.mixer, Mixer::kDeltaRule) > 0) {
    read_sizes(fields, model.linear);
    model.linear.gates_apart = model.architecture != Architecture::kQwen3Next;
  }
}

}  // namespace heddle::spec
