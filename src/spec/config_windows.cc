#include "spec/config_windows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "spec/json.h"

namespace heddle::spec {
namespace {

/// Which layers `layer_types` says are windowed; empty where the key is absent.
std::vector<bool> read_layer_types(JsonFields& fields, const ModelSpec& model) {
  const Json* value = fields.find("layer_types");
  if (value == nullptr) {
    return {};
  }
  const std::string right = fmt::format(
      "it must be an array of num_hidden_layers ({}) times \"full_attention\" or "
      "\"sliding_attention\"",
      model.layers);
  const auto* names = value->as<Json::Array>();
  if (names == nullptr || std::cmp_not_equal(names->size(), model.layers)) {
    fields.reject("layer_types", right);
    return {};
  }
  std::vector<bool> windowed;
  for (const Json& item : *names) {
    const auto* name = item.as<std::string>();
    const bool known =
        name != nullptr && (*name == "full_attention" || *name == "sliding_attention");
    if (!known) {
      fields.reject_as(fmt::format("layer_types[{}]", windowed.size()), describe(item), right);
      return {};
    }
    windowed.push_back(*name == "sliding_attention");
  }
  return windowed;
}

constexpr IntegerRange kWindowRange{1, std::numeric_limits<std::int32_t>::max()};

bool any_of(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

/// A window that all layers share, if `used`; 0 for none. What an absent key means is `usual`, 0
/// for none.
std::int64_t read_common_window(JsonFields& fields,
                                const Family& family,
                                const std::vector<bool>& windowed,
                                bool used,
                                std::int64_t usual) {
  if (std::adjacent_find(windowed.begin(), windowed.end(), std::not_equal_to<>()) !=
      windowed.end()) {
    fields.reject("layer_types", fmt::format("all layers of {} are of one type", family.name));
  }
  const bool none = !used || fields.is_null("sliding_window") ||
                    (usual == 0 && fields.find("sliding_window") == nullptr);
  return none ? 0 : fields.integer("sliding_window", kWindowRange, usual);
}

/// The window of Qwen, 0 for none. Fills `windowed` where `layer_types` has left it empty.
std::int64_t read_qwen_window(JsonFields& fields,
                              const ModelSpec& model,
                              std::vector<bool>& windowed) {
  const bool used = fields.boolean("use_sliding_window", false);
  const bool none = !used || fields.is_null("sliding_window");
  const std::int64_t window = none ? 0 : fields.integer("sliding_window", kWindowRange, 4096);
  const std::int64_t first = fields.integer("max_window_layers", {0, kLayersMax}, 28);
  if (none && any_of(windowed)) {
    fields.reject(used ? "sliding_window" : "use_sliding_window",
                  "layer_types has \"sliding_attention\" layers, so there must be a window");
  }
  for (std::int64_t layer = std::ssize(windowed); layer < model.layers; ++layer) {
    windowed.push_back(layer >= first);
  }
  return window;
}

/// Every `pattern`-th layer attends to all positions, the others to a window.
std::vector<bool> all_but_every(std::int64_t pattern, std::size_t layers) {
  std::vector<bool> windowed;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    windowed.push_back((static_cast<std::int64_t>(layer) + 1) % pattern != 0);
  }
  return windowed;
}

/// The window of Gemma, 0 for none. Gemma 3 and 4 turn windowed layers apart, whatever the window.
std::int64_t read_gemma_window(JsonFields& fields, ModelSpec& model, std::vector<bool>& windowed) {
  const bool fourth = model.architecture == Architecture::kGemma4;
  const bool apart = fourth || model.architecture == Architecture::kGemma3;
  // Gemma 4's is null, "all", or "vision", which leaves text as it is.
  if (fourth ? fields.text("use_bidirectional_attention") == "all"
             : fields.boolean("use_bidirectional_attention", false)) {
    fields.reject("use_bidirectional_attention",
                  fmt::format("only models that look back are built in; {}", kElsewhere));
  }
  const std::int64_t pattern = fourth ? 6
                               : apart
                                   ? fields.integer("sliding_window_pattern", {1, kLayersMax}, 6)
                                   : 2;
  if (windowed.empty()) {
    windowed = all_but_every(pattern, static_cast<std::size_t>(model.layers));
  }
  if (fourth) {
    windowed.back() = false;  // Whatever `layer_types` says.
  }
  for (std::size_t layer = 0; apart && layer < windowed.size(); ++layer) {
    model.layer_rope.push_back(windowed[layer] ? LayerRope::kLocal : LayerRope::kModels);
  }
  const std::int64_t usual = fourth ? 512 : 4096;
  return fields.is_null("sliding_window") ? 0
                                          : fields.integer("sliding_window", kWindowRange, usual);
}

/// Which layers of SmolLM3 rotate, and the window of the others, if they have one.
std::int64_t read_smollm3_window(JsonFields& fields,
                                 ModelSpec& model,
                                 std::vector<bool>& windowed) {
  const std::int64_t interval = fields.integer("no_rope_layer_interval", {1, kLayersMax}, 4);
  const auto layers = static_cast<std::size_t>(model.layers);
  std::vector<bool> rotates = all_but_every(interval, layers);
  if (const Json* value = fields.find("no_rope_layers"); value != nullptr) {
    const auto* list = value->as<Json::Array>();
    if (list == nullptr || list->size() < layers) {
      fields.reject("no_rope_layers",
                    fmt::format("it must be an array of at least num_hidden_layers ({}) times 0 or "
                                "1",
                                model.layers));
      return 0;
    }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const auto* flag = (*list)[layer].as<std::int64_t>();
      if (flag == nullptr || (*flag != 0 && *flag != 1)) {
        fields.reject_as(fmt::format("no_rope_layers[{}]", layer),
                         describe((*list)[layer]),
                         "it must be 0 or 1");
        return 0;
      }
      rotates[layer] = *flag == 1;
    }
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    model.layer_rope.push_back(rotates[layer] ? LayerRope::kModels : LayerRope::kNone);
  }
  if (windowed.empty()) {
    windowed = rotates;
    windowed.flip();
  }
  return fields.boolean("use_sliding_window", false)
             ? fields.integer("sliding_window", kWindowRange, 0)
             : 0;
}

/// The window of a family, 0 for none. Fills `windowed` where `layer_types` has left it empty.
std::int64_t read_window(JsonFields& fields,
                         const Family& family,
                         ModelSpec& model,
                         std::vector<bool>& windowed) {
  const auto common = [&](bool used, std::int64_t usual) {
    const std::int64_t window = read_common_window(fields, family, windowed, used, usual);
    windowed.assign(static_cast<std::size_t>(model.layers), true);
    return window;
  };
  switch (family.architecture) {
    case Architecture::kLlama:
    case Architecture::kGranite:
    case Architecture::kOlmo2:
      if (any_of(windowed)) {
        fields.reject("layer_types",
                      fmt::format("{} has only \"full_attention\" layers", family.name));
      }
      return 0;
    case Architecture::kMistral:
      return common(true, 4096);
    case Architecture::kMixtral:
    case Architecture::kPhi3:
      return common(true, 0);
    case Architecture::kQwen3Moe:
      return common(fields.boolean("use_sliding_window", false), 4096);
    case Architecture::kGemma2:
    case Architecture::kGemma3:
    case Architecture::kGemma4:
      return read_gemma_window(fields, model, windowed);
    case Architecture::kGptOss:
      if (windowed.empty()) {
        windowed = all_but_every(2, static_cast<std::size_t>(model.layers));
      }
      return fields.is_null("sliding_window") ? 0
                                              : fields.integer("sliding_window", kWindowRange, 128);
    case Architecture::kSmolLm3:
      return read_smollm3_window(fields, model, windowed);
    case Architecture::kQwen2Moe:
      if (windowed.empty() && fields.boolean("use_sliding_window", false)) {
        fields.reject("use_sliding_window",
                      "layer_types must say which layers of Qwen2MoeForCausalLM have a window");
      }
      return read_qwen_window(fields, model, windowed);
    case Architecture::kQwen2:
    case Architecture::kQwen3:
      return read_qwen_window(fields, model, windowed);
    case Architecture::kQwen3Next:
    case Architecture::kQwen35:
    case Architecture::kQwen35Moe:
    case Architecture::kBert:
    case Architecture::kRoberta:
    case Architecture::kXlmRoberta:
      return 0;
  }
  return 0;
}

}  // namespace

void read_windows(JsonFields& fields, const Family& family, ModelSpec& model) {
  const auto layers = static_cast<std::size_t>(model.layers);
  model.window.assign(layers, 0);
  if (is_hybrid(family.architecture)) {
    return;  // Their `layer_types` are of another kind.
  }
  std::vector<bool> windowed = read_layer_types(fields, model);
  const std::int64_t window = read_window(fields, family, model, windowed);
  // Positions end at max_position, so a window of that many tokens or more hides none of them.
  if (window == 0 || window >= model.max_position) {
    return;
  }
  for (std::size_t layer = 0; layer < layers && fields.ok(); ++layer) {
    model.window[layer] = windowed[layer] ? window : 0;
  }
}

}  // namespace heddle::spec
