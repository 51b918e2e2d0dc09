#include "store/inspect_render.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "spec/json_writer.h"
#include "spec/operations.h"

namespace heddle::store {
namespace {

using spec::JsonWriter;
using spec::ModelSpec;
using spec::RopeKind;

constexpr std::uint64_t kTokensShown = 1000;

std::string_view rope_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLongRope:
      return "longrope";
    case RopeKind::kProportional:
      return "proportional";
  }
  return "?";
}

/// "1.24 B", "463 k", "17".
std::string format_count(std::uint64_t count) {
  constexpr std::array kUnits = {
      std::pair{1e12, "T"}, std::pair{1e9, "B"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}};
  const auto value = static_cast<double>(count);
  for (const auto& [scale, name] : kUnits) {
    if (value >= scale) {
      return fmt::format("{:.3g} {}", value / scale, name);
    }
  }
  return fmt::format("{}", count);
}

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

Totals totals(const Inspection& inspection) {
  Totals sum;
  for (const TypeTotal& type : inspection.types) {
    sum.tensors += type.tensors;
    sum.elements += type.elements;
    sum.bytes += type.bytes;
  }
  return sum;
}

/// Lines of a label and a value; a label that is empty continues the one above.
class Sheet {
 public:
  void line(std::string_view label, std::string_view value) {
    text_ += fmt::format("  {:<14}", label);
    for (const char c : value) {  // What files hold must not steer the terminal.
      const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
      text_ += control ? '?' : c;
    }
    text_ += '\n';
  }
  void lines(std::string_view label, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      line(label, value);
      label = "";
    }
  }
  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  std::string text_{};
};

std::string window_text(const ModelSpec& model) {
  const auto windowed = std::count_if(
      model.window.begin(), model.window.end(), [](std::int64_t window) { return window > 0; });
  if (windowed == 0) {
    return "";
  }
  return fmt::format(", window of {} in {} of {} layers",
                     *std::max_element(model.window.begin(), model.window.end()),
                     windowed,
                     model.layers);
}

std::string extras_text(const ModelSpec& model) {
  const spec::Encoder& encoder = model.encoder;
  std::vector<std::string_view> extras = {encoder.bare
                                              ? "an encoder that scores pairs, without its pooler"
                                          : encoder.scores        ? "an encoder that scores pairs"
                                          : encoder.positions > 0 ? "an encoder that makes vectors"
                                          : model.tied_embeddings ? "tied embeddings"
                                                                  : "own output head"};
  const spec::Scales& scales = model.scales;
  const bool scaled = scales.embedding != 1 || scales.residual != 1 || scales.logits != 1;
  const std::array<std::pair<bool, std::string_view>, 18> switches = {
      std::pair{model.qkv_bias, "q/k/v bias"},
      std::pair{model.out_bias, "output bias"},
      std::pair{model.mlp_bias, "mlp bias"},
      std::pair{model.qk_norm, "q/k norm"},
      std::pair{model.qk_norm_whole, "q/k norm over all heads"},
      std::pair{model.value_norm, "norm of values"},
      std::pair{model.keys_are_values, "keys that are values"},
      std::pair{model.norms == spec::Norms::kAround, "norms around attention and mlp"},
      std::pair{model.norms == spec::Norms::kAfter, "norms behind attention and mlp"},
      std::pair{model.activation != spec::Activation::kSilu, "GELU"},
      std::pair{model.attention_gate, "gated attention"},
      std::pair{model.sinks, "sinks of attention"},
      std::pair{model.layer_scale, "multipliers of layers"},
      std::pair{model.experts.biased, "biases of experts"},
      std::pair{model.experts.gate_limit > 0, "gates within a limit"},
      std::pair{scaled, "multipliers"},
      std::pair{scales.attention_cap > 0, "soft cap of scores"},
      std::pair{scales.logit_cap > 0, "soft cap of logits"}};
  for (const auto& [on, name] : switches) {
    if (on) {
      extras.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(extras, ", "));
}

/// ", 1e4 in 5 layers, none in 1": of layers that rotate otherwise.
std::string layer_rope_text(const ModelSpec& model) {
  const auto of = [&model](spec::LayerRope rope) {
    return std::count(model.layer_rope.begin(), model.layer_rope.end(), rope);
  };
  std::string text;
  if (const auto local = of(spec::LayerRope::kLocal); local > 0) {
    text = fmt::format(", theta {} in {} layers", model.local_theta, local);
  }
  if (const auto none = of(spec::LayerRope::kNone); none > 0) {
    text += fmt::format(", none in {} layers", none);
  }
  return text;
}

/// How a model knows where a token is: "rope theta 10000", or an encoder's table.
std::string rope_text(const ModelSpec& model) {
  if (spec::is_encoder(model)) {
    return fmt::format(
        "{} positions, {} token types", model.encoder.positions, model.encoder.types);
  }
  std::string rope = fmt::format("rope theta {}", model.rope_theta);
  if (model.rope.kind != RopeKind::kDefault) {
    rope += fmt::format(" ({} x {:.4g})", rope_name(model.rope.kind), model.rope.factor);
  }
  if (model.rotary_dim > 0) {
    rope += fmt::format(", of {} elements of a head", model.rotary_dim);
  }
  return rope + layer_rope_text(model);
}

/// "mlp 48", or the experts, with what all tokens share.
std::string mlp_text(const ModelSpec& model) {
  const spec::Experts& experts = model.experts;
  std::string text;
  if (experts.count > 0) {
    text = fmt::format("{} experts of {}, of which a token takes {}",
                       experts.count,
                       experts.intermediate,
                       experts.active);
  }
  if (model.intermediate > 0) {
    text += fmt::format("{}mlp {}", text.empty() ? "" : ", shared ", model.intermediate);
  }
  return text;
}

/// "in 1 of 6 layers 16 heads of 512 (4 for k and v)".
std::string global_heads_text(const ModelSpec& model) {
  const auto count = std::ranges::count(model.layer_rope, spec::LayerRope::kModels);
  return fmt::format("in {} of {} layers {} heads of {} ({} for k and v)",
                     count,
                     model.layers,
                     model.heads,
                     model.global_head_dim,
                     model.global_kv_heads);
}

/// "linear attention in 3 of 4 layers, 16 heads of 128 and 32 of 128 for values".
std::string linear_text(const ModelSpec& model) {
  const spec::LinearAttention& linear = model.linear;
  return fmt::format("linear attention in {} of {} layers, {} heads of {} and {} of {} for values",
                     std::ranges::count(model.mixer, spec::Mixer::kDeltaRule),
                     model.layers,
                     linear.key_heads,
                     linear.key_dim,
                     linear.value_heads,
                     linear.value_dim);
}

std::string defaults_text(const spec::GenerationDefaults& defaults) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
    }
  };
  add("do_sample", defaults.do_sample);
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    add(number.name, defaults.numbers[number.field]);
  }
  add("top_k", defaults.top_k);
  add("max_new_tokens", defaults.max_new_tokens);
  return text.empty() ? "none" : text;
}

void add_model(const Inspection& inspection, Sheet& sheet) {
  const ModelSpec& model = inspection.config->model;
  sheet.line("architecture", spec::architecture_name(model.architecture));
  sheet.line("dimensions",
             fmt::format("{} layers, hidden {}, {} heads of {} ({} for k and v), {}, "
                         "vocabulary {}",
                         model.layers,
                         model.hidden,
                         model.heads,
                         model.head_dim,
                         model.kv_heads,
                         mlp_text(model),
                         model.vocab));
  if (model.global_head_dim > 0) {
    sheet.line("", global_heads_text(model));
  }
  if (spec::has_states(model)) {
    sheet.line("", linear_text(model));
  }
  sheet.line("with", extras_text(model));
  sheet.line(
      "context",
      fmt::format("{} tokens{}, {}", model.max_position, window_text(model), rope_text(model)));
  const auto parameters = static_cast<std::uint64_t>(spec::parameter_count(model));
  std::string counted = fmt::format("{} ({})", format_count(parameters), parameters);
  if (model.experts.count > 0) {
    const auto active = static_cast<std::uint64_t>(spec::active_parameter_count(model));
    counted += fmt::format(", of which a token uses {}", format_count(active));
  }
  sheet.line("parameters", counted);
  if (spec::is_encoder(model)) {
    return;  // It writes nothing.
  }
  sheet.line("end of turn",
             model.eos.empty() ? "none" : fmt::format("token {}", fmt::join(model.eos, ", ")));
  sheet.line("defaults", defaults_text(inspection.config->generation));
}

void add_weights(const Inspection& inspection, Sheet& sheet) {
  const Totals sum = totals(inspection);
  std::vector<std::string> types;
  for (const TypeTotal& type : inspection.types) {
    types.push_back(fmt::format(
        "{} {} ({})", type.tensors, stored_type_name(type.type), format_bytes(type.bytes)));
  }
  sheet.line("weights",
             fmt::format("{} in {} tensors, {} elements, of {} file{}",
                         format_bytes(sum.bytes),
                         sum.tensors,
                         format_count(sum.elements),
                         inspection.files.size(),
                         inspection.files.size() == 1 ? "" : "s"));
  sheet.line("stored as", fmt::format("{}", fmt::join(types, ", ")));
  std::vector<std::string> biggest;
  for (const StoredTensor& tensor : inspection.biggest) {
    biggest.push_back(
        fmt::format("{:<10} {} {}", format_bytes(tensor.bytes), tensor.name, describe(tensor)));
  }
  sheet.lines("biggest", biggest);
}

std::string describe_kv(std::string_view type, std::uint64_t per_token) {
  return fmt::format("{}: {} per token, {} per 1,000 tokens",
                     type,
                     format_bytes(per_token),
                     format_bytes(per_token * kTokensShown));
}

void add_needs(const Inspection& inspection, Sheet& sheet) {
  std::vector<std::string> needs;
  std::vector<std::string> kv;
  for (const spec::MemoryNeeds& need : inspection.needs) {
    needs.push_back(spec::describe(need));
    kv.push_back(describe_kv(spec::dtype_name(need.dtype), need.kv_per_token));
    if (need.state > 0) {
      kv.back() += fmt::format(", {} of state per sequence", format_bytes(need.state));
    }
  }
  if (inspection.config && !spec::is_encoder(inspection.config->model)) {
    spec::ModelSpec model = inspection.config->model;
    model.kv = spec::KvType::kI8;
    kv.push_back(describe_kv("kv_cache_dtype int8 or fp8",
                             spec::kv_bytes_per_token(model, spec::DType::kBf16)));
  }
  sheet.lines("memory", needs);
  sheet.lines("kv cache", kv);
}

void write_strings(JsonWriter& json, std::string_view key, const std::vector<std::string>& values) {
  json.key(key).begin_array();
  for (const std::string& value : values) {
    json.string(value);
  }
  json.end_array();
}

void write_model(JsonWriter& json, const ModelSpec& model) {
  json.key("model").begin_object();
  json.key("architecture").string(spec::architecture_name(model.architecture));
  json.key("layers").integer(model.layers).key("hidden").integer(model.hidden);
  json.key("heads").integer(model.heads).key("kv_heads").integer(model.kv_heads);
  json.key("head_dim").integer(model.head_dim).key("intermediate").integer(model.intermediate);
  if (model.global_head_dim > 0) {
    json.key("global_kv_heads").integer(model.global_kv_heads);
    json.key("global_head_dim").integer(model.global_head_dim);
  }
  if (const spec::Experts& experts = model.experts; experts.count > 0) {
    json.key("experts").begin_object();
    json.key("count").integer(experts.count).key("active").integer(experts.active);
    json.key("intermediate").integer(experts.intermediate).end_object();
  }
  if (const spec::LinearAttention& linear = model.linear; spec::has_states(model)) {
    json.key("linear_attention").begin_object();
    json.key("layers").integer(std::ranges::count(model.mixer, spec::Mixer::kDeltaRule));
    json.key("key_heads").integer(linear.key_heads).key("value_heads").integer(linear.value_heads);
    json.key("key_dim").integer(linear.key_dim).key("value_dim").integer(linear.value_dim);
    json.key("kernel").integer(linear.kernel).end_object();
  }
  json.key("vocab").integer(model.vocab).key("context").integer(model.max_position);
  json.key("tied_embeddings").boolean(model.tied_embeddings);
  json.key("rope").string(rope_name(model.rope.kind)).key("rope_theta").number(model.rope_theta);
  json.key("parameters").integer(spec::parameter_count(model));
  json.key("active_parameters").integer(spec::active_parameter_count(model));
  json.key("window").begin_array();
  for (const std::int64_t window : model.window) {
    json.integer(window);
  }
  json.end_array().key("eos").begin_array();
  for (const TokenId token : model.eos) {
    json.integer(token);
  }
  json.end_array().end_object();
}

void write_weights(JsonWriter& json, const Inspection& inspection) {
  const Totals sum = totals(inspection);
  json.key("weights").begin_object();
  json.key("tensors").integer(sum.tensors).key("elements").integer(sum.elements);
  json.key("bytes").integer(sum.bytes);
  write_strings(json, "files", inspection.files);
  json.key("types").begin_object();
  for (const TypeTotal& type : inspection.types) {
    json.key(stored_type_name(type.type)).begin_object();
    json.key("tensors").integer(type.tensors).key("elements").integer(type.elements);
    json.key("bytes").integer(type.bytes).end_object();
  }
  json.end_object().key("biggest").begin_array();
  for (const StoredTensor& tensor : inspection.biggest) {
    json.begin_object().key("name").string(tensor.name);
    json.key("type").string(stored_type_name(tensor.type)).key("shape").begin_array();
    for (const std::int64_t size : tensor.shape) {
      json.integer(size);
    }
    json.end_array().key("bytes").integer(tensor.bytes).end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string render_text(const Inspection& inspection) {
  Sheet sheet;
  sheet.line("path", inspection.path.string());
  if (!inspection.format.empty()) {
    sheet.line("format", inspection.format);
  }
  if (inspection.config) {
    add_model(inspection, sheet);
  }
  if (!inspection.files.empty()) {
    add_weights(inspection, sheet);
  }
  if (!inspection.text_files.empty()) {
    sheet.line("text", fmt::format("{}", fmt::join(inspection.text_files, ", ")));
  }
  if (!inspection.tokenizer.empty()) {
    sheet.line("tokenizer", inspection.tokenizer);
  }
  add_needs(inspection, sheet);
  sheet.lines("note", inspection.notes);
  sheet.lines("PROBLEM", inspection.problems);
  return std::move(sheet).take();
}

std::string render_json(const Inspection& inspection) {
  JsonWriter json;
  json.begin_object().key("path").string(inspection.path.string());
  if (!inspection.format.empty()) {
    json.key("format").string(inspection.format);
    json.key("tokenizer").string(inspection.tokenizer);
  }
  if (inspection.config) {
    write_model(json, inspection.config->model);
  }
  if (!inspection.files.empty()) {
    write_weights(json, inspection);
  }
  json.key("memory").begin_object();
  for (const spec::MemoryNeeds& need : inspection.needs) {
    json.key(spec::dtype_name(need.dtype)).begin_object();
    json.key("weights_bytes").integer(need.weights);
    json.key("kv_bytes_per_token").integer(need.kv_per_token);
    json.key("state_bytes").integer(need.state);
    json.key("smallest_bytes").integer(need.smallest);
    json.key("one_context_bytes").integer(need.one_context).end_object();
  }
  json.end_object();
  write_strings(json, "text_files", inspection.text_files);
  write_strings(json, "notes", inspection.notes);
  write_strings(json, "problems", inspection.problems);
  json.end_object();
  return std::move(json).take();
}

}  // namespace heddle::store
