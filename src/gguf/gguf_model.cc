#include "gguf/gguf_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gguf/architecture.h"
#include "gguf/gguf_encoder.h"
#include "gguf/gguf_gemma4.h"
#include "gguf/matrix_formats.h"
#include "gguf/metadata_fields.h"
#include "gguf/tensor_names.h"
#include "gguf/token_ids.h"
#include "spec/config_family.h"
#include "spec/json_writer.h"
#include "spec/operations.h"

namespace heddle::gguf {
namespace {

using spec::Architecture;
using spec::JsonWriter;

/// Rotary scaling of Llama 3.
struct Llama3Scaling {
  double factor = 1;
  double low = 1;
  double high = 4;
  double original = 8192;  ///< Positions.
};

/// What a frequency is divided by (a factor of rope_freqs.weight), if it makes `turns` turns over
/// the original context.
double llama3_factor(const Llama3Scaling& scaling, double turns) {
  const double keep = std::clamp((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
  return 1.0 / ((1.0 - keep) / scaling.factor + keep);
}

/// The plain frequencies, in radians per position.
std::vector<double> plain_frequencies(double theta, std::size_t count) {
  std::vector<double> frequencies(count);
  for (std::size_t i = 0; i < count; ++i) {
    frequencies[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(count));
  }
  return frequencies;
}

bool makes(const Llama3Scaling& scaling,
           const std::vector<double>& frequencies,
           const std::vector<float>& factors) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double turns = scaling.original * frequencies[i] / (2 * std::numbers::pi);
    const double wanted = llama3_factor(scaling, turns);
    if (!(std::abs(wanted - static_cast<double>(factors[i])) <= 1e-3 * wanted)) {
      return false;
    }
  }
  return true;
}

/// The scaling that makes these factors. They hold the original context and the two ends of the
/// ramp only as ratios, so that one of them is free: where those of Llama 3 do not fit, `low` is 1,
/// and two points on the ramp, where what is kept of a frequency grows with it in a straight line,
/// say the rest. Nothing where there is no such scaling.
std::optional<Llama3Scaling> fit_llama3(double theta, const std::vector<float>& factors) {
  const std::vector<double> frequencies = plain_frequencies(theta, factors.size());
  Llama3Scaling scaling{.factor = static_cast<double>(*std::ranges::max_element(factors))};
  if (makes(scaling, frequencies, factors)) {
    return scaling;
  }
  std::vector<std::pair<double, double>> ramp;  // Frequency, and what is kept of it.
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto factor = static_cast<double>(factors[i]);
    if (factor > 1.0 + 1e-6 && factor < scaling.factor * (1.0 - 1e-6)) {
      const double least = 1.0 / scaling.factor;
      ramp.emplace_back(frequencies[i], (1.0 / factor - least) / (1.0 - least));
    }
  }
  if (ramp.size() < 2) {
    return std::nullopt;
  }
  const auto& [fast, kept_fast] = ramp.front();
  const auto& [slow, kept_slow] = ramp.back();
  const double slope = (kept_fast - kept_slow) / (fast - slow);
  const double none = kept_fast - slope * fast;
  scaling.high = 1.0 - 1.0 / none;
  scaling.original = std::round(slope * 2 * std::numbers::pi * (scaling.high - scaling.low));
  const bool sound = none < 0 && scaling.original >= 1 && scaling.original <= 1 << 30;
  return sound && makes(scaling, frequencies, factors) ? std::optional(scaling) : std::nullopt;
}

/// Writes the config.json of one file.
class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufFile& file) : file_(file), fields_(file) {}

  Result<std::string> write() && {
    known_ = find_architecture(file_);
    if (known_ == nullptr) {
      fields_.reject("general.architecture",
                     fmt::format("built in are {}; {}", known_architectures(), kElsewhere),
                     Code::kInvalidArgument);
      return fields_.status().error();
    }
    json_.begin_object();
    json_.key("architectures").begin_array();
    json_.string(spec::architecture_name(known_->family)).end_array();
    json_.key("model_type").string(known_->model_type);
    write_dimensions();
    write_experts();
    if (spec::is_hybrid(known_->family)) {
      write_linear_attention();
    }
    write_switches();
    write_window();
    if (is_gemma()) {
      write_gemma();
    } else if (known_->family == Architecture::kGranite) {
      write_granite();
    }
    if (fields_.ok()) {
      write_rope();
    }
    write_token_ids(fields_, json_);
    json_.end_object();
    return fields_.ok() ? Result<std::string>(std::move(json_).take()) : fields_.status().error();
  }

 private:
  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("{}.{}", known_->name, name);
  }
  void refuse(std::string_view name, std::string_view what) {
    fields_.reject(key(name), fmt::format("{}; {}", what, kElsewhere), Code::kInvalidArgument);
  }

  void write_dimensions() {
    const std::int64_t hidden = fields_.integer(key("embedding_length"));
    const std::int64_t heads = fields_.integer(key("attention.head_count"));
    head_dim_ = head_dim_of(file_, known_->name);
    if (fields_.integer(key("attention.value_length"), head_dim_) != head_dim_) {
      refuse("attention.value_length", "only values as long as keys are built in");
    }
    const std::int64_t rotary = fields_.integer(key("rope.dimension_count"), head_dim_);
    if (spec::rotates_in_part(known_->family) && head_dim_ > 0) {
      json_.key("partial_rotary_factor");
      json_.number(static_cast<double>(rotary) / static_cast<double>(head_dim_));
    } else if (rotary != head_dim_) {
      refuse("rope.dimension_count",
             fmt::format("only {}, rotating whole heads, is built in", head_dim_));
    }
    const Tensor* embeddings = file_.tensor("token_embd.weight");
    if (embeddings == nullptr || embeddings->shape.size() != 2) {
      fields_.fail({Code::kCorrupt,
                    fmt::format("{}: there is no matrix \"token_embd.weight\"", file_.name)});
      return;
    }
    json_.key("hidden_size").integer(hidden);
    json_.key("num_attention_heads").integer(heads);
    json_.key("head_dim").integer(head_dim_);
    json_.key("num_key_value_heads")
        .integer(fields_.integer(key("attention.head_count_kv"), heads));
    json_.key("num_hidden_layers");
    json_.integer(fields_.integer(key("block_count")) - fields_.integer(key(kPredictingLayers), 0));
    write_widths();
    json_.key("max_position_embeddings").integer(fields_.integer(key("context_length")));
    json_.key("vocab_size").integer(embeddings->shape[0]);
    write_number("rms_norm_eps", key("attention.layer_norm_rms_epsilon"));
    json_.key("torch_dtype").string("bfloat16");
  }

  [[nodiscard]] bool has_experts() const {
    return known_->family == Architecture::kMixtral || known_->family == Architecture::kQwen2Moe ||
           known_->family == Architecture::kQwen3Moe || is_qwen3_next() ||
           known_->family == Architecture::kQwen35Moe || is_gpt_oss();
  }
  [[nodiscard]] bool is_qwen3_next() const { return known_->family == Architecture::kQwen3Next; }
  [[nodiscard]] bool is_gpt_oss() const { return known_->family == Architecture::kGptOss; }
  [[nodiscard]] bool is_gemma() const {
    return known_->family == Architecture::kGemma2 || known_->family == Architecture::kGemma3;
  }

  /// Of the MLP, and of experts, whose width is that of the MLP divided where a file is old.
  void write_widths() {
    const bool alone = has_experts() && known_->family != Architecture::kMixtral;
    if (is_gpt_oss()) {
      json_.key("intermediate_size").integer(fields_.integer(key("expert_feed_forward_length")));
      return;
    }
    const std::int64_t width = fields_.integer(
        key("feed_forward_length"), alone ? std::optional<std::int64_t>(0) : std::nullopt);
    if (!alone) {
      json_.key("intermediate_size").integer(width);
      return;
    }
    const std::int64_t used = fields_.integer(key("expert_used_count"));
    json_.key("moe_intermediate_size");
    json_.integer(
        fields_.integer(key("expert_feed_forward_length"), used > 0 ? width / used : width));
    if (known_->family == Architecture::kQwen2Moe || known_->family == Architecture::kQwen35Moe ||
        is_qwen3_next()) {
      json_.key("shared_expert_intermediate_size");
      json_.integer(fields_.integer(key("expert_shared_feed_forward_length"), width));
    }
  }

  void write_experts() {
    const std::int64_t count = fields_.integer(key("expert_count"), 0);
    if (!has_experts()) {
      if (count > 1) {
        refuse("expert_count", fmt::format("{} with experts is not built in", known_->name));
      }
      return;
    }
    const bool local = known_->family == Architecture::kMixtral || is_gpt_oss();
    json_.key(local ? "num_local_experts" : "num_experts").integer(count);
    json_.key("num_experts_per_tok").integer(fields_.integer(key("expert_used_count")));
    if (!local) {
      // As llama.cpp has it, whatever the file says.
      json_.key("norm_topk_prob");
      json_.boolean(known_->family == Architecture::kQwen3Moe || is_qwen3_next());
      json_.key("qkv_bias").boolean(file_.tensor("blk.0.attn_q.bias") != nullptr);
    }
  }

  /// What llama.cpp calls as it does of state spaces. Heads of values are as long as they make its
  /// inner size.
  void write_linear_attention() {
    const std::int64_t heads = fields_.integer(key("ssm.time_step_rank"));
    const std::int64_t inner = fields_.integer(key("ssm.inner_size"));
    if (heads < 1 || inner % heads != 0) {
      return refuse("ssm.inner_size", "it must be a multiple of ssm.time_step_rank");
    }
    if (fields_.has(key("attention.recurrent_layers"))) {
      return refuse("attention.recurrent_layers", "only full_attention_interval is built in");
    }
    json_.key("linear_num_value_heads").integer(heads);
    json_.key("linear_value_head_dim").integer(inner / heads);
    json_.key("linear_num_key_heads").integer(fields_.integer(key("ssm.group_count")));
    json_.key("linear_key_head_dim").integer(fields_.integer(key("ssm.state_size")));
    json_.key("linear_conv_kernel_dim").integer(fields_.integer(key("ssm.conv_kernel")));
    json_.key("full_attention_interval")
        .integer(fields_.integer(key("full_attention_interval"), 4));
  }

  void write_window() {
    const std::string window = key("attention.sliding_window");
    const bool windows = known_->family == Architecture::kMistral ||
                         known_->family == Architecture::kMixtral ||
                         known_->family == Architecture::kPhi3 || is_gemma() || is_gpt_oss();
    if (windows && fields_.has(window)) {
      json_.key("sliding_window").integer(fields_.integer(window));
    }
  }

  /// What llama.cpp takes of Gemma, some of it by the number of layers: files do not say by what
  /// scores of the largest models are divided.
  void write_gemma() {
    const bool second = known_->family == Architecture::kGemma2;
    const bool largest = fields_.integer(key("block_count"), 0) == (second ? 46 : 62);
    const std::int64_t heads = fields_.integer(key("attention.head_count"));
    json_.key("query_pre_attn_scalar");
    json_.integer(largest && heads > 0 ? fields_.integer(key("embedding_length")) / heads
                                       : head_dim_);
    write_number("attn_logit_softcapping", key("attn_logit_softcapping"));
    write_number("final_logit_softcapping", key("final_logit_softcapping"));
    const std::string pattern = key("attention.sliding_window_pattern");
    const bool windows = fields_.has(key("attention.sliding_window"));
    if (!second && (fields_.has(pattern) || !windows)) {
      json_.key("sliding_window_pattern").integer(windows ? fields_.integer(pattern) : 1);
    }
    write_number("rope_local_base_freq", key("rope.freq_base_swa"));
  }

  void write_granite() {
    json_.key("attention_multiplier");
    json_.number(
        fields_.number(key("attention.scale"),
                       1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, head_dim_)))));
    write_number("embedding_multiplier", key("embedding_scale"));
    write_number("residual_multiplier", key("residual_scale"));
    write_number("logits_scaling", key("logit_scale"));
  }

  void write_switches() {
    if (!fields_.boolean(key("attention.causal"), true)) {
      refuse("attention.causal", "only models that look back are built in");
    }
    json_.key("tie_word_embeddings").boolean(file_.tensor("output.weight") == nullptr);
    json_.key("attention_bias").boolean(file_.tensor("blk.0.attn_q.bias") != nullptr);
    json_.key("mlp_bias").boolean(file_.tensor("blk.0.ffn_up.bias") != nullptr);
  }

  void write_number(std::string_view name, const std::string& from) {
    if (const std::string decimal = fields_.decimal(from); !decimal.empty()) {
      json_.key(name).json(decimal);
    }
  }

  void write_rope() {
    write_number("rope_theta", key("rope.freq_base"));
    if (const Tensor* factors = file_.tensor("rope_freqs.weight"); factors != nullptr) {
      return write_llama3(*factors);
    }
    if (file_.tensor("rope_factors_long.weight") != nullptr) {
      return write_longrope();
    }
    const std::string kind = fields_.text(key("rope.scaling.type"));
    const bool old = kind.empty() && fields_.has(key("rope.scale_linear"));
    if (!old && (kind.empty() || kind == "none")) {
      if (is_gpt_oss()) {  // Which takes the absent key for a scaling.
        json_.key("rope_scaling").begin_object().key("rope_type").string("default").end_object();
      }
      return;
    }
    if (!old && kind != "linear" && kind != "yarn") {
      return refuse("rope.scaling.type", "built in are none, linear and yarn");
    }
    json_.key("rope_scaling").begin_object();
    json_.key("rope_type").string(old ? "linear" : kind);
    write_number("factor", key(old ? "rope.scale_linear" : "rope.scaling.factor"));
    if (kind == "yarn") {
      write_yarn();
    }
    json_.end_object();
  }

  void write_yarn() {
    const std::string original = key("rope.scaling.original_context_length");
    if (fields_.has(original)) {
      json_.key("original_max_position_embeddings").integer(fields_.integer(original));
    }
    if (is_gpt_oss()) {
      // As these models were trained. llama.cpp rounds the range to whole dimensions.
      json_.key("truncate").boolean(false);
    }
    write_number("beta_fast", key("rope.scaling.yarn_beta_fast"));
    write_number("beta_slow", key("rope.scaling.yarn_beta_slow"));
    for (const std::string_view other : {"rope.scaling.attn_factor",
                                         "rope.scaling.yarn_attn_factor",
                                         "rope.scaling.yarn_ext_factor"}) {
      const std::string decimal = fields_.decimal(key(other));
      if (!decimal.empty() && decimal != "1" && decimal != "-1") {
        refuse(other, "only 1 is built in");
      }
    }
  }

  /// Numbers of a tensor of one dimension of `count`; none where it is another.
  std::vector<float> read_numbers(const Tensor& tensor, std::int64_t count) {
    if (count <= 0 || tensor.type != BlockType::kF32 || tensor.shape != std::vector{count}) {
      return {};
    }
    std::vector<float> numbers(static_cast<std::size_t>(count));
    const Result<void> read =
        file_.files[tensor.file].read(tensor.offset, std::as_writable_bytes(std::span(numbers)));
    if (!read) {
      fields_.fail(read.error());
      return {};
    }
    return numbers;
  }

  void write_factors(const char* name, const std::string& from) {
    const std::int64_t pairs = fields_.integer(key("rope.dimension_count"), head_dim_) / 2;
    const Tensor* tensor = file_.tensor(from);
    const std::vector<float> factors =
        tensor != nullptr ? read_numbers(*tensor, pairs) : std::vector<float>{};
    if (factors.empty()) {
      return fields_.fail(
          {Code::kCorrupt,
           fmt::format("{}: tensor \"{}\" is not {} numbers, one for each pair that rotates",
                       file_.name,
                       from,
                       pairs)});
    }
    json_.key(name).begin_array();
    for (const float factor : factors) {
      json_.number(factor);
    }
    json_.end_array();
  }

  void write_longrope() {
    json_.key("rope_scaling").begin_object().key("rope_type").string("longrope");
    json_.key("original_max_position_embeddings");
    json_.integer(fields_.integer(key("rope.scaling.original_context_length")));
    write_number("attention_factor", key("rope.scaling.attn_factor"));
    write_factors("long_factor", "rope_factors_long.weight");
    write_factors("short_factor", "rope_factors_short.weight");
    json_.end_object();
  }

  void write_llama3(const Tensor& tensor) {
    const std::vector<float> factors = read_numbers(tensor, head_dim_ / 2);
    const bool sound = !factors.empty() && std::ranges::all_of(factors, [](float factor) {
      return std::isfinite(factor) && factor >= 0.999F;
    });
    if (sound && std::ranges::max(factors) < 1.001F) {
      return;  // Nothing is scaled.
    }
    const double theta = fields_.number(key("rope.freq_base"), 10000.0);
    const auto scaling = sound ? fit_llama3(theta, factors) : std::nullopt;
    if (!scaling) {
      return fields_.fail(
          {Code::kInvalidArgument,
           fmt::format("{}: tensor \"rope_freqs.weight\" is not what scaling of Llama 3 makes for "
                       "heads of {}; {}",
                       file_.name,
                       head_dim_,
                       kElsewhere)});
    }
    json_.key("rope_scaling").begin_object().key("rope_type").string("llama3");
    json_.key("factor").number(scaling->factor);
    json_.key("low_freq_factor").number(scaling->low);
    json_.key("high_freq_factor").number(scaling->high);
    json_.key("original_max_position_embeddings");
    json_.integer(static_cast<std::int64_t>(scaling->original)).end_object();
  }

  const GgufFile& file_;
  MetadataFields fields_;
  JsonWriter json_{};
  const KnownArchitecture* known_ = nullptr;
  std::int64_t head_dim_ = 0;
};

/// Where files have rows of linear attention otherwise than directories: value heads by turns of
/// the key heads, but for Qwen3-Next, whose gates have a tensor of their own in all but old files.
void set_layout(const GgufFile& file, spec::ModelSpec& model) {
  const bool next = model.architecture == Architecture::kQwen3Next;
  model.linear.tiled = spec::has_states(model) && !next;
  if (next && spec::has_states(model)) {
    model.linear.gates_apart = std::ranges::none_of(
        file.tensors, [](const Tensor& tensor) { return tensor.name.ends_with(".ssm_in.weight"); });
  }
}

}  // namespace

Result<std::string> config_json(const GgufFile& file) {
  const KnownArchitecture* known = find_architecture(file);
  if (known != nullptr && known->family == Architecture::kBert) {
    return encoder_config_json(file);
  }
  if (known != nullptr && known->family == Architecture::kGemma4) {
    return gemma4_config_json(file);
  }
  return ConfigWriter(file).write();
}

std::string generation_config_json(const GgufFile& file) {
  struct Suggestion {
    std::string_view from{};
    std::string_view to{};
    std::string_view otherwise{};
  };
  constexpr std::array kSuggestions = {
      Suggestion{.from = "temp", .to = "temperature", .otherwise = "0.8"},
      Suggestion{.from = "top_p", .to = "top_p", .otherwise = "0.95"},
      Suggestion{.from = "top_k", .to = "top_k", .otherwise = "40"},
      Suggestion{.from = "min_p", .to = "min_p", .otherwise = "0.05"},
      Suggestion{.from = "penalty_repeat", .to = "repetition_penalty", .otherwise = ""}};
  MetadataFields fields(file);
  JsonWriter json;
  json.begin_object();
  for (const auto& [from, to, otherwise] : kSuggestions) {
    const std::string said = fields.decimal(fmt::format("general.sampling.{}", from));
    if (!said.empty() || !otherwise.empty()) {
      json.key(to).json(said.empty() ? otherwise : said);
    }
  }
  json.end_object();
  return std::move(json).take();
}

Result<spec::ModelSpec> model_spec(const GgufFile& file) {
  const Result<std::string> json = config_json(file);
  if (!json) {
    return json.error();
  }
  auto model = spec::parse_model_config(*json, file.name + " (as config.json)");
  if (model) {
    model->formats = matrix_formats(file, model->layers, spec::is_encoder(*model));
    set_layout(file, *model);
    model->encoder.bare = scores_barely(file);
  }
  return model;
}

Result<spec::GenerationDefaults> generation_defaults(const GgufFile& file, std::int64_t vocab) {
  return spec::parse_generation_config(
      generation_config_json(file), file.name + " (general.sampling)", vocab);
}

}  // namespace heddle::gguf
