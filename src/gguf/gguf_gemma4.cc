#include "gguf/gguf_gemma4.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "gguf/architecture.h"
#include "gguf/metadata_fields.h"
#include "gguf/token_ids.h"
#include "spec/json_writer.h"

namespace heddle::gguf {
namespace {

using spec::JsonWriter;

constexpr std::string_view kFactors = "rope_freqs.weight";
/// What a frequency is divided by where its pair does not turn, at least.
constexpr float kStill = 1e9F;
/// More layers than any model has.
constexpr std::int64_t kLayersMost = 1 << 10;

std::string key(std::string_view name) {
  return fmt::format("gemma4.{}", name);
}

/// Writes the config.json of one file.
class Gemma4Writer {
 public:
  explicit Gemma4Writer(const GgufFile& file) : file_(file), fields_(file) {}

  Result<std::string> write() && {
    read_layers();
    refuse_small();
    if (!fields_.ok()) {
      return fields_.status().error();
    }
    json_.begin_object();
    json_.key("architectures").begin_array().string("Gemma4ForCausalLM").end_array();
    json_.key("model_type").string("gemma4_text");
    write_sizes();
    write_layers();
    write_heads();
    write_experts();
    write_rope();
    write_token_ids(fields_, json_);
    json_.end_object();
    return fields_.ok() ? Result<std::string>(std::move(json_).take()) : fields_.status().error();
  }

 private:
  /// Which layers have a window. The last has none, as `transformers` has it.
  void read_layers() {
    const std::string pattern = key("attention.sliding_window_pattern");
    const std::int64_t layers = fields_.integer(key("block_count"));
    const Array* windowed = fields_.integers(pattern);
    if (layers < 1 || layers > kLayersMost) {
      return fields_.reject(key("block_count"), fmt::format("it must be 1 to {}", kLayersMost));
    }
    if (windowed == nullptr || std::cmp_not_equal(windowed->count, layers)) {
      return fields_.reject(pattern, fmt::format("it must be an array of {} bools", layers));
    }
    for (const std::int64_t flag : windowed->integers) {
      windowed_.push_back(flag != 0);
    }
    if (windowed_.back()) {
      fields_.reject(pattern, "the last layer must have no window");
    }
  }

  /// What E2B and E4B have, and nothing here computes.
  void refuse_small() {
    for (const char* name : {"embedding_length_per_layer_input", "attention.shared_kv_layers"}) {
      if (fields_.integer(key(name), 0) != 0) {
        fields_.reject(
            key(name), fmt::format("only 0 is built in; {}", kElsewhere), Code::kInvalidArgument);
      }
    }
  }

  void write_sizes() {
    const Tensor* embeddings = file_.tensor("token_embd.weight");
    if (embeddings == nullptr || embeddings->shape.size() != 2) {
      return fields_.fail(
          {Code::kCorrupt,
           fmt::format("{}: there is no matrix \"token_embd.weight\"", file_.name)});
    }
    json_.key("vocab_size").integer(embeddings->shape.front());
    for (const auto& [name, from] : {std::pair("hidden_size", "embedding_length"),
                                     std::pair("num_attention_heads", "attention.head_count"),
                                     std::pair("intermediate_size", "feed_forward_length"),
                                     std::pair("max_position_embeddings", "context_length"),
                                     std::pair("sliding_window", "attention.sliding_window")}) {
      json_.key(name).integer(fields_.integer(key(from)));
    }
    for (const auto& [name, from] :
         {std::pair("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
          std::pair("final_logit_softcapping", "final_logit_softcapping")}) {
      if (const std::string decimal = fields_.decimal(key(from)); !decimal.empty()) {
        json_.key(name).json(decimal);
      }
    }
    json_.key("hidden_size_per_layer_input").integer(0).key("num_kv_shared_layers").integer(0);
    json_.key("tie_word_embeddings").boolean(file_.tensor("output.weight") == nullptr);
    json_.key("torch_dtype").string("bfloat16");
  }

  void write_layers() {
    json_.key("num_hidden_layers").integer(windowed_.size()).key("layer_types").begin_array();
    for (const bool windowed : windowed_) {
      json_.string(windowed ? "sliding_attention" : "full_attention");
    }
    json_.end_array();
  }

  /// How long heads are, whose queries, keys and values are equally so.
  std::int64_t length_of(std::string_view ending) {
    const std::string name = key(fmt::format("attention.key_length{}", ending));
    const std::int64_t length = fields_.integer(name);
    for (const char* other : {"attention.value_length", "rope.dimension_count"}) {
      const std::string same = key(fmt::format("{}{}", other, ending));
      if (fields_.integer(same, length) != length) {
        fields_.reject(same,
                       fmt::format("only {}, as {}, is built in; {}", length, name, kElsewhere),
                       Code::kInvalidArgument);
      }
    }
    return length;
  }

  /// Heads of keys of layers with a window, or of those without, which have to be as many.
  std::int64_t kv_heads(bool windowed) {
    const std::string name = key("attention.head_count_kv");
    if (std::ranges::count(windowed_, windowed) == 0) {
      return kv_heads(!windowed);
    }
    const Value* value = file_.find(name);
    if (value == nullptr || !std::holds_alternative<Array>(*value)) {
      return fields_.integer(name);
    }
    const Array* counts = fields_.integers(name);
    std::optional<std::int64_t> found;
    for (std::size_t layer = 0; layer < windowed_.size(); ++layer) {
      if (counts == nullptr || counts->count != windowed_.size() ||
          (windowed_[layer] == windowed &&
           found.value_or(counts->integers[layer]) != counts->integers[layer])) {
        fields_.reject(name,
                       fmt::format("of {} layers those with a window must have as many, and those "
                                   "without",
                                   windowed_.size()));
        return 1;
      }
      found = windowed_[layer] == windowed ? counts->integers[layer] : found;
    }
    return found.value_or(1);
  }

  void write_heads() {
    const auto first =
        static_cast<std::size_t>(std::ranges::find(windowed_, false) - windowed_.begin());
    const bool same = file_.tensor(fmt::format("blk.{}.attn_v.weight", first)) == nullptr;
    const std::int64_t local = kv_heads(true);
    const std::int64_t global = kv_heads(false);
    if (!same && local != global) {
      fields_.reject(key("attention.head_count_kv"),
                     fmt::format("only layers without \"attn_v\" have other heads; {}", kElsewhere),
                     Code::kInvalidArgument);
    }
    head_dim_ = length_of("");
    json_.key("global_head_dim").integer(head_dim_).key("head_dim").integer(length_of("_swa"));
    json_.key("num_key_value_heads").integer(local).key("attention_k_eq_v").boolean(same);
    json_.key("num_global_key_value_heads").integer(global);
  }

  void write_experts() {
    const std::int64_t count = fields_.integer(key("expert_count"), 0);
    json_.key("enable_moe_block").boolean(count > 0);
    if (count > 0) {
      json_.key("num_experts").integer(count);
      json_.key("top_k_experts").integer(fields_.integer(key("expert_used_count")));
      json_.key("moe_intermediate_size");
      json_.integer(fields_.integer(key("expert_feed_forward_length")));
    }
  }

  /// What share of a head's pairs turns: those that are divided by 1, before those that stand
  /// still.
  double turning_share() {
    const Tensor* tensor = file_.tensor(kFactors);
    const std::int64_t pairs = head_dim_ / 2;
    std::vector<float> factors;
    if (tensor != nullptr && tensor->type == BlockType::kF32 && pairs > 0 &&
        tensor->shape == std::vector{pairs}) {
      factors.resize(static_cast<std::size_t>(pairs));
      const Result<void> read = file_.files[tensor->file].read(
          tensor->offset, std::as_writable_bytes(std::span(factors)));
      if (!read) {
        fields_.fail(read.error());
        return 1.0;
      }
    }
    const auto still = std::ranges::find_if(factors, [](float factor) { return factor != 1.0F; });
    if (factors.empty() ||
        !std::all_of(still, factors.end(), [](float factor) { return factor >= kStill; })) {
      fields_.fail(
          {Code::kCorrupt,
           fmt::format("{}: tensor \"{}\" is not {} numbers, 1 for each pair that turns and "
                       "then 1e30",
                       file_.name,
                       kFactors,
                       pairs)});
      return 1.0;
    }
    const auto turning = static_cast<double>(still - factors.begin());
    const double share = turning / static_cast<double>(pairs);
    return std::floor(share * static_cast<double>(pairs)) < turning ? std::nextafter(share, 1.0)
                                                                    : share;
  }

  void write_rope() {
    json_.key("rope_parameters").begin_object();
    json_.key("full_attention").begin_object().key("rope_type").string("proportional");
    json_.key("partial_rotary_factor").number(turning_share());
    write_theta("rope.freq_base", "1000000");
    json_.end_object().key("sliding_attention").begin_object().key("rope_type").string("default");
    write_theta("rope.freq_base_swa", "10000");
    json_.end_object().end_object();
    const std::string kind = fields_.text(key("rope.scaling.type"));
    if (!kind.empty() && kind != "none") {
      fields_.reject(key("rope.scaling.type"),
                     fmt::format("only none is built in; {}", kElsewhere),
                     Code::kInvalidArgument);
    }
  }

  void write_theta(std::string_view from, std::string_view otherwise) {
    const std::string said = fields_.decimal(key(from));
    json_.key("rope_theta").json(said.empty() ? otherwise : said);
  }

  const GgufFile& file_;
  MetadataFields fields_;
  JsonWriter json_{};
  std::vector<bool> windowed_{};
  std::int64_t head_dim_ = 0;  ///< Of layers without a window.
};

}  // namespace

Result<std::string> gemma4_config_json(const GgufFile& file) {
  return Gemma4Writer(file).write();
}

}  // namespace heddle::gguf
