#include "spec/config_rope.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "spec/json.h"
#include "spec/operations.h"

namespace heddle::spec {
namespace {

constexpr NumberRange kFactorRange{1.0, 1e6};
constexpr NumberRange kThetaRange{1.0 + 1e-6, 1e12};

/// Bounds a length stretched by `factor`, so that a product of two plausible numbers is too.
std::int64_t stretched(std::int64_t positions, double factor) {
  return static_cast<std::int64_t>(
      std::min(static_cast<double>(positions) * factor, static_cast<double>(kPositionMax)));
}

void read_yarn(JsonFields& rope, RopeScaling& scaling) {
  constexpr NumberRange kPositive{1e-6, 1e6};
  scaling.beta_fast = rope.number("beta_fast", kPositive, 32.0);
  scaling.beta_slow = rope.number("beta_slow", kPositive, 1.0);
  scaling.attention_factor = rope.number("attention_factor", kPositive, 0.0);
  scaling.mscale = rope.number("mscale", {0.0, 1e6}, 0.0);
  scaling.mscale_all_dim = rope.number("mscale_all_dim", {0.0, 1e6}, 0.0);
  scaling.truncate = rope.boolean("truncate", true);
}

/// A factor for each pair of a head's elements that rotate.
std::vector<double> read_factors(JsonFields& rope, std::string_view key, const ModelSpec& model) {
  const std::int64_t pairs = rotary_dim(model) / 2;
  const std::string right = fmt::format(
      "it must be an array of {} numbers above 0, one for each pair of elements that rotate",
      pairs);
  const Json* value = rope.find(key);
  const auto* list = value != nullptr ? value->as<Json::Array>() : nullptr;
  if (list == nullptr) {
    rope.reject(key, right);
    return {};
  }
  if (std::ssize(*list) != pairs) {
    rope.reject_as(key, fmt::format("an array of {}", list->size()), right);
    return {};
  }
  std::vector<double> factors;
  for (const Json& one : *list) {
    const auto* whole = one.as<std::int64_t>();
    const auto* fraction = one.as<double>();
    const double factor = whole != nullptr      ? static_cast<double>(*whole)
                          : fraction != nullptr ? *fraction
                                                : 0.0;
    if (!(factor >= 1e-6 && factor <= 1e6)) {
      rope.reject_as(fmt::format("{}[{}]", key, factors.size()), describe(one), right);
      return {};
    }
    factors.push_back(factor);
  }
  return factors;
}

/// As Phi-3's files of 128k have it: two lists of factors, of which fit_rope() chooses.
void read_longrope(JsonFields& rope, std::int64_t original_outside, ModelSpec& model) {
  RopeScaling& scaling = model.rope;
  scaling.kind = RopeKind::kLongRope;
  const std::int64_t inside =
      rope.integer("original_max_position_embeddings", {1, kPositionMax}, model.max_position);
  scaling.original_max_position = original_outside > 0 ? original_outside : inside;
  scaling.factor = rope.number("factor",
                               kFactorRange,
                               std::max(1.0,
                                        static_cast<double>(model.max_position) /
                                            static_cast<double>(scaling.original_max_position)));
  scaling.attention_factor = rope.number("attention_factor", {1e-6, 1e6}, 0.0);
  scaling.factors = read_factors(rope, "long_factor", model);
  scaling.short_factors = read_factors(rope, "short_factor", model);
}

void read_scaling(JsonFields& rope, std::int64_t original_outside, ModelSpec& model) {
  RopeScaling& scaling = model.rope;
  const std::string key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string kind = rope.text(key);
  if (kind.empty() || kind == "default") {
    return;
  }
  if (kind != "linear" && kind != "llama3" && kind != "yarn" && kind != "longrope") {
    rope.reject(
        key,
        fmt::format(
            "built in are \"default\", \"linear\", \"llama3\", \"yarn\" and \"longrope\"; {}",
            kElsewhere));
    return;
  }
  if (kind == "longrope") {
    read_longrope(rope, original_outside, model);
    return;
  }
  scaling.factor = rope.number("factor", kFactorRange);
  if (kind == "linear") {
    scaling.kind = RopeKind::kLinear;
    if (model.architecture != Architecture::kGemma3) {  // Which gives the length after stretching.
      model.max_position = stretched(model.max_position, scaling.factor);
    }
    return;
  }
  const std::int64_t inside =
      rope.integer("original_max_position_embeddings", {1, kPositionMax}, model.max_position);
  scaling.original_max_position = original_outside > 0 ? original_outside : inside;
  if (kind == "yarn") {
    scaling.kind = RopeKind::kYarn;
    read_yarn(rope, scaling);
    model.max_position =
        std::max(model.max_position, stretched(scaling.original_max_position, scaling.factor));
    return;
  }
  scaling.kind = RopeKind::kLlama3;
  scaling.low_freq_factor = rope.number("low_freq_factor", {1e-6, 1e6});
  scaling.high_freq_factor = rope.number("high_freq_factor", {1e-6, 1e6});
  if (rope.ok() && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.reject(
        "high_freq_factor",
        fmt::format("it must be above low_freq_factor, which is {}", scaling.low_freq_factor));
  }
}

/// How much of each head rotates; `outside` is what stands outside.
void read_share(JsonFields& rope, double outside, ModelSpec& model) {
  const double share = rope.number("partial_rotary_factor", {0.0, 1.0}, outside);
  if (!rotates_in_part(model.architecture) && share != 1.0) {
    rope.reject("partial_rotary_factor",
                fmt::format("only 1, rotating whole heads, is built in; {}", kElsewhere));
    return;
  }
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * share);
  if (rotary < 2 || rotary % 2 != 0) {
    rope.reject(
        "partial_rotary_factor",
        fmt::format("{} of {} elements of a head cannot rotate in pairs", rotary, model.head_dim));
    return;
  }
  model.rotary_dim = rotary == model.head_dim ? 0 : rotary;
}

/// Theta and scaling of layers without a rotary embedding of their own.
void read_one(JsonFields& rope, std::int64_t original, double share, ModelSpec& model) {
  read_share(rope, share, model);
  model.rope_theta = rope.number("rope_theta", kThetaRange, model.rope_theta);
  read_scaling(rope, original, model);
}

/// Those of layers with a window, which are unscaled.
void read_local(JsonFields& rope, ModelSpec& model) {
  const std::string kind = rope.text("rope_type");
  if (!kind.empty() && kind != "default") {
    rope.reject("rope_type",
                fmt::format("layers with a window rotate by \"default\" here; {}", kElsewhere));
  }
  model.local_theta = rope.number("rope_theta", kThetaRange, model.local_theta);
}

/// Those of layers without a window in Gemma 4.
void read_global(JsonFields& rope, ModelSpec& model) {
  model.rope = {};
  model.rope_theta = rope.number("rope_theta", kThetaRange, model.rope_theta);
  const std::string kind = rope.text("rope_type");
  if (kind == "proportional") {
    model.rope = {.kind = RopeKind::kProportional,
                  .factor = rope.number("factor", kFactorRange, 1.0),
                  .share = rope.number("partial_rotary_factor", {0.0, 1.0}, 1.0)};
  } else if (!kind.empty() && kind != "default") {
    rope.reject("rope_type",
                fmt::format("here \"default\" and \"proportional\" are built in; {}", kElsewhere));
  }
}

/// `rope_parameters` by type of layer; false where it is not so written.
bool read_by_layer(JsonFields& rope,
                   std::string_view where,
                   std::int64_t original,
                   double share,
                   ModelSpec& model) {
  bool found = false;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    const Json* value = rope.find(layer_type);
    if (value == nullptr) {
      continue;
    }
    found = true;
    const bool fourth = model.architecture == Architecture::kGemma4;
    if (!fourth && model.architecture != Architecture::kGemma3) {
      rope.reject(layer_type,
                  fmt::format("one rotary embedding for all layers is built in; {}", kElsewhere));
      return true;
    }
    JsonFields part(*value, fmt::format("{}{}.", where, layer_type));
    const bool local = std::string_view(layer_type) == "sliding_attention";
    if (local) {
      read_local(part, model);
    } else if (fourth) {
      read_global(part, model);
    } else {
      read_one(part, original, share, model);
    }
    rope.adopt(part);
  }
  return found;
}

/// Gemma 4 has no keys outside `rope_parameters`.
void read_gemma4(JsonFields& fields,
                 std::string_view where,
                 const Family& family,
                 ModelSpec& model) {
  constexpr std::string_view kKey = "rope_parameters";
  model.rope_theta = family.rope_theta;
  model.rope = {.kind = RopeKind::kProportional, .share = 0.25};
  const Json* value = fields.find(kKey);
  if (value == nullptr) {
    return;
  }
  const std::string within = fmt::format("{}{}.", where, kKey);
  JsonFields rope(*value, within);
  if (rope.ok() && !read_by_layer(rope, within, 0, 1.0, model)) {
    fields.reject(kKey, "it must have \"full_attention\" and \"sliding_attention\"");
  }
  fields.adopt(rope);
}

}  // namespace

void read_rope(JsonFields& fields, std::string_view where, const Family& family, ModelSpec& model) {
  if (family.architecture == Architecture::kGemma4) {
    read_gemma4(fields, where, family, model);
    return;
  }
  model.rope_theta = fields.number("rope_theta", kThetaRange, family.rope_theta);
  if (family.architecture == Architecture::kGemma3) {
    model.local_theta = fields.number("rope_local_base_freq", kThetaRange, model.local_theta);
  }
  const std::int64_t original =
      fields.integer("original_max_position_embeddings", {1, kPositionMax}, 0);
  const double usual = is_hybrid(family.architecture) ? 0.25 : 1.0;
  const double share = fields.number("partial_rotary_factor", {0.0, 1.0}, usual);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.find(key);
    const auto* object = value != nullptr ? value->as<Json::Object>() : nullptr;
    if (value == nullptr || (object != nullptr && object->empty())) {
      continue;
    }
    const std::string within = fmt::format("{}{}.", where, key);
    JsonFields rope(*value, within);
    if (!read_by_layer(rope, within, original, share, model)) {
      read_one(rope, original, share, model);
    }
    fields.adopt(rope);
    return;
  }
  if (family.architecture == Architecture::kGptOss) {  // What it takes an absent key for.
    constexpr std::int64_t kOriginal = 4096;
    model.rope = {.kind = RopeKind::kYarn,
                  .factor = 32.0,
                  .truncate = false,
                  .original_max_position = kOriginal};
    model.max_position = std::max(model.max_position, stretched(kOriginal, model.rope.factor));
  }
  read_share(fields, share, model);
}

}  // namespace heddle::spec
