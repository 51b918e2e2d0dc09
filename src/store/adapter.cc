#include "store/adapter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "store/convert.h"
#include "store/safetensors.h"

#include <sys/stat.h>

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "adapter_model.safetensors";
constexpr std::uint64_t kAlign = 64;
constexpr std::size_t kWarmBytes = std::size_t{1} << 20U;

/// A module of a layer that adapters may add to.
struct Module {
  std::string_view name{};  ///< "self_attn.q_proj"
  AdapterTarget target = AdapterTarget::kQkv;
  std::int64_t first = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// Those of a base. Experts have none, nor what is beside them.
std::vector<Module> modules_of(const spec::ModelSpec& base) {
  const std::int64_t q = base.heads * base.head_dim;
  const std::int64_t kv = base.kv_heads * base.head_dim;
  using enum AdapterTarget;
  std::vector<Module> modules{{"self_attn.q_proj", kQkv, 0, q, base.hidden},
                              {"self_attn.k_proj", kQkv, q, kv, base.hidden},
                              {"self_attn.v_proj", kQkv, q + kv, kv, base.hidden},
                              {"self_attn.qkv_proj", kQkv, 0, q + 2 * kv, base.hidden},
                              {"self_attn.o_proj", kOut, 0, base.hidden, q}};
  if (base.experts.count == 0) {
    const std::int64_t n = base.intermediate;
    modules.push_back({"mlp.gate_proj", kGateUp, 0, n, base.hidden});
    modules.push_back({"mlp.up_proj", kGateUp, n, n, base.hidden});
    modules.push_back({"mlp.gate_up_proj", kGateUp, 0, 2 * n, base.hidden});
    modules.push_back({"mlp.down_proj", kDown, 0, base.hidden, n});
  }
  return modules;
}

/// A tensor's name in its parts: "[base_model.model...]layers.3.self_attn.q_proj.lora_A.weight".
struct TensorName {
  std::int64_t layer = 0;
  std::string module{};
  bool is_b = false;
};

std::optional<TensorName> parse_name(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  TensorName parsed;
  const std::size_t layers = name.find(kLayers);
  if (layers == std::string_view::npos || (layers > 0 && name[layers - 1] != '.')) {
    return std::nullopt;
  }
  std::string_view rest = name.substr(layers + kLayers.size());
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), parsed.layer);
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (failure != std::errc() || !rest.starts_with('.')) {
    return std::nullopt;
  }
  rest.remove_prefix(1);
  for (const auto& [ending, is_b] : {std::pair(".lora_A.weight", false),
                                     std::pair(".lora_B.weight", true),
                                     std::pair(".lora_A.default.weight", false),
                                     std::pair(".lora_B.default.weight", true)}) {
    if (rest.ends_with(ending)) {
      parsed.is_b = is_b;
      parsed.module = rest.substr(0, rest.size() - std::string_view(ending).size());
      return parsed;
    }
  }
  return std::nullopt;
}

/// What an adapter's file has, as far as it has been looked at.
class Pairs {
 public:
  Pairs(const spec::ModelSpec& base, std::int64_t rank, std::string where)
      : base_(base), modules_(modules_of(base)), rank_(rank), where_(std::move(where)) {}

  Result<void> add(const StoredTensor& tensor);
  /// All of them, whole and in order.
  Result<std::vector<AdapterPair>> take(const std::vector<std::string>& targets);

 private:
  struct Half {
    const Module* module = nullptr;
    std::optional<StoredTensor> a{};
    std::optional<StoredTensor> b{};
  };

  [[nodiscard]] Error wrong(const std::string& what) const {
    return Error{Code::kInvalidArgument, where_ + what};
  }
  [[nodiscard]] std::string known_modules() const;
  [[nodiscard]] Result<void> check_shape(const StoredTensor& tensor,
                                         const Module& module,
                                         bool is_b) const;

  const spec::ModelSpec& base_;
  std::vector<Module> modules_;
  std::int64_t rank_;
  std::string where_;
  std::map<std::pair<std::int64_t, std::string>, Half> halves_{};
};

std::string Pairs::known_modules() const {
  std::string names;
  for (const Module& module : modules_) {
    names += (names.empty() ? "" : ", ") + std::string(module.name);
  }
  return names;
}

Result<void> Pairs::check_shape(const StoredTensor& tensor, const Module& module, bool is_b) const {
  const std::vector<std::int64_t> wanted =
      is_b ? std::vector{module.outputs, rank_} : std::vector{rank_, module.inputs};
  if (tensor.shape != wanted) {
    const std::string rank = is_b ? "its columns" : "its rows";
    return wrong(fmt::format(
        "tensor {} is [{}], and of {} of this base with r {} it would be [{}]: {} are r of "
        "adapter_config.json, the other number is the base's, so one of the two is another's",
        tensor.name,
        fmt::join(tensor.shape, ", "),
        module.name,
        rank_,
        fmt::join(wanted, ", "),
        rank));
  }
  return {};
}

Result<void> Pairs::add(const StoredTensor& tensor) {
  const std::optional<TensorName> name = parse_name(tensor.name);
  if (!name) {
    return wrong(fmt::format(
        "tensor {} is no lora_A or lora_B of a module of a layer: nothing else is built in",
        tensor.name));
  }
  const auto module = std::ranges::find(modules_, name->module, &Module::name);
  if (module == modules_.end()) {
    return wrong(
        fmt::format("tensor {} is of module {}; those of this base that adapters may "
                    "change are {}",
                    tensor.name,
                    name->module,
                    known_modules()));
  }
  if (name->layer < 0 || name->layer >= base_.layers) {
    return wrong(fmt::format(
        "tensor {} is of layer {}; this base has {}", tensor.name, name->layer, base_.layers));
  }
  if (const Result<void> fits = check_shape(tensor, *module, name->is_b); !fits) {
    return fits;
  }
  if (!can_convert(tensor.type, spec::DType::kF32) || tensor.type >= StoredType::kBlocks) {
    return wrong(fmt::format("tensor {} is stored as {}; want F32, F16 or BF16",
                             tensor.name,
                             stored_type_name(tensor.type)));
  }
  Half& half = halves_[{name->layer, name->module}];
  half.module = &*module;
  (name->is_b ? half.b : half.a) = tensor;
  return {};
}

Result<std::vector<AdapterPair>> Pairs::take(const std::vector<std::string>& targets) {
  std::vector<AdapterPair> pairs;
  std::set<std::string> seen;
  for (const auto& [key, half] : halves_) {
    if (!half.a || !half.b) {
      return wrong(fmt::format("tensor {} is there without its lora_{}",
                               half.a ? half.a->name : half.b->name,
                               half.a ? "B" : "A"));
    }
    seen.insert(key.second.substr(key.second.rfind('.') + 1));
    pairs.push_back({.layer = key.first,
                     .target = half.module->target,
                     .first = half.module->first,
                     .inputs = half.module->inputs,
                     .outputs = half.module->outputs,
                     .a = *half.a,
                     .b = *half.b});
  }
  for (const std::string& target : targets) {
    if (!seen.contains(target.substr(target.rfind('.') + 1))) {
      return wrong(
          fmt::format("has no tensor of {}, which adapter_config.json names as a target; "
                      "modules of this base that adapters may change are {}",
                      target,
                      known_modules()));
    }
  }
  if (pairs.empty()) {
    return wrong("has no tensors");
  }
  std::ranges::sort(pairs, {}, [](const AdapterPair& pair) {
    return std::tuple(pair.layer, pair.target, pair.first, pair.outputs);
  });
  for (std::size_t i = 1; i < pairs.size(); ++i) {
    const AdapterPair& before = pairs[i - 1];
    if (before.layer == pairs[i].layer && before.target == pairs[i].target &&
        before.first + before.outputs > pairs[i].first) {
      return wrong(fmt::format(
          "tensors {} and {} change the same outputs: a module is there whole or in its parts",
          before.a.name,
          pairs[i].a.name));
    }
  }
  return pairs;
}

/// Bases of which nobody has adapted all parts yet.
Result<void> check_base(const spec::ModelSpec& base) {
  const bool whole = base.shard.ranks == 1 && spec::stages_of(base) == 1;
  if (whole && base.global_head_dim > 0) {
    return Error{Code::kInvalidArgument,
                 "adapters of models whose layers have heads of two sizes are not built in"};
  }
  if (whole && !spec::has_states(base) && !base.attention_gate) {
    return {};
  }
  return Error{Code::kInvalidArgument,
               std::string("adapters of models that ") +
                   (whole ? "have linear or gated attention" : "are sharded or cut into stages") +
                   " are not built in"};
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

Result<std::string> adapter_identity(const fs::path& directory) {
  std::string identity;
  for (const std::string_view name : {std::string_view("adapter_config.json"), kWeights}) {
    struct stat file{};
    const fs::path path = directory / name;
    if (::stat(path.c_str(), &file) != 0) {
      return Error{Code::kNotFound, path.string() + ": no such file, or not readable"};
    }
    identity += fmt::format("{:x}.{:x}.{:x}.{:x}.{:x};",
                            file.st_dev,
                            file.st_ino,
                            file.st_size,
                            file.st_mtim.tv_sec,
                            file.st_mtim.tv_nsec);
  }
  return identity;
}

Result<Adapter> Adapter::open(const fs::path& directory,
                              const spec::ModelSpec& base,
                              spec::DType weights) {
  const Result<std::string> identity = adapter_identity(directory);
  Result<AdapterConfig> config = read_adapter_config(directory);
  if (!config) {
    return config.error();
  }
  if (!identity) {
    return identity.error();
  }
  if (const Result<void> possible = check_base(base); !possible) {
    return Error{possible.error().code, directory.string() + ": " + possible.error().message};
  }
  Result<SafetensorsFile> file = SafetensorsFile::open(directory / kWeights);
  if (!file) {
    return file.error();
  }
  Pairs pairs(base, config->rank, (directory / kWeights).string() + ": ");
  for (const StoredTensor& tensor : file->tensors) {
    if (const Result<void> added = pairs.add(tensor); !added) {
      return added.error();
    }
  }
  Result<std::vector<AdapterPair>> taken = pairs.take(config->targets);
  if (!taken) {
    return taken.error();
  }
  Adapter adapter(std::move(*config), std::move(file->file));
  adapter.dtype_ = spec::compute_dtype(weights);
  adapter.pairs_ = std::move(*taken);
  adapter.identity_ = *identity;
  const std::uint64_t element = spec::dtype_bytes(adapter.dtype_);
  const auto rank = static_cast<std::uint64_t>(adapter.config_.rank);
  for (AdapterPair& pair : adapter.pairs_) {
    pair.a_offset = adapter.image_bytes_;
    pair.b_offset =
        pair.a_offset + aligned(rank * static_cast<std::uint64_t>(pair.inputs) * element);
    adapter.image_bytes_ =
        pair.b_offset + aligned(rank * static_cast<std::uint64_t>(pair.outputs) * element);
  }
  return adapter;
}

/// One matrix, times `factor`.
Result<void> Adapter::load(const StoredTensor& tensor, float factor, std::byte* target) const {
  std::vector<std::byte> stored(tensor.bytes);
  if (const Result<void> read = file_.read(tensor.offset, stored); !read) {
    return read;
  }
  const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
  if (factor == 1.0F) {
    convert(tensor.type, stored.data(), dtype_, target, count);
    return {};
  }
  std::vector<float> numbers(count);
  auto* const bytes = reinterpret_cast<std::byte*>(numbers.data());
  convert(tensor.type, stored.data(), spec::DType::kF32, bytes, count);
  for (float& number : numbers) {
    number *= factor;
  }
  convert(StoredType::kF32, bytes, dtype_, target, count);
  return {};
}

Result<void> Adapter::load(std::span<std::byte> image) const {
  HEDDLE_CHECK(image.size() == image_bytes_);
  for (const AdapterPair& pair : pairs_) {
    if (const Result<void> read = load(pair.a, 1.0F, image.data() + pair.a_offset); !read) {
      return read;
    }
    const auto scale = static_cast<float>(config_.scale);
    if (const Result<void> read = load(pair.b, scale, image.data() + pair.b_offset); !read) {
      return read;
    }
  }
  return {};
}

Result<void> Adapter::read_through() const {
  std::vector<std::byte> some(kWarmBytes);
  for (std::uint64_t offset = 0; offset < file_.bytes(); offset += kWarmBytes) {
    const std::uint64_t bytes = std::min<std::uint64_t>(kWarmBytes, file_.bytes() - offset);
    const Result<void> read =
        file_.read(offset, std::span(some).first(static_cast<std::size_t>(bytes)));
    if (!read) {
      return read;
    }
  }
  return {};
}

}  // namespace heddle::store
