#include "config/fallback.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/engine_declare.h"
#include "gguf/built_in.h"
#include "gguf/metadata_fields.h"

#include <unistd.h>

namespace heddle::config {
namespace {

constexpr std::string_view kServer = "llama-server";
/// Tokens of a model that nobody gave a context, and bytes that a server takes beside its model.
constexpr std::int64_t kContext = 8192;
constexpr std::uint64_t kBeside = 64U << 20U;
constexpr std::array<std::string_view, 5> kStarts{"cmd", "proxy", "container", "engine", "args"};

const Node* child(const Node& map, std::string_view key) {
  const auto found = std::ranges::find(map.children, key, &Node::key);
  return found == map.children.end() ? nullptr : &*found;
}

/// Whether the file says itself that an engine serves the model.
bool has_engine(const Node& model) {
  return std::ranges::any_of(kStarts,
                             [&](std::string_view key) { return child(model, key) != nullptr; });
}

/// Whether the model has keys that no engine could follow.
bool only_ours(const Node& model) {
  return child(model, "tensor_parallel") != nullptr ||
         child(model, "pipeline_parallel") != nullptr ||
         std::ranges::any_of(native_keys(), [&](std::string_view key) {
           return key != "context" && child(model, key) != nullptr;
         });
}

/// What llama.cpp's server needs for a model.
struct Need {
  std::string lack{};        ///< Why heddle's own engine cannot serve it; empty: it can.
  std::int64_t context = 0;  ///< Tokens.
  std::uint64_t memory = 0;  ///< Bytes.
};

/// Of an architecture that nobody here knows, by the keys that all have: its KV as float16, and
/// logits of the tokens that the server computes at once.
std::uint64_t beside_weights(const gguf::GgufFile& file, std::int64_t context) {
  constexpr std::int64_t kAtOnce = 512;
  gguf::MetadataFields fields(file);
  const std::string of = fields.text("general.architecture") + ".";
  const auto number = [&](const std::string& key, std::int64_t otherwise) {
    const std::int64_t value = fields.integer(of + key, otherwise);
    return value > 0 && value < 1 << 30 ? value : otherwise;
  };
  const std::int64_t heads = number("attention.head_count", 1);
  const std::int64_t head = number("embedding_length", 0) / heads;
  const std::int64_t layer =
      number("attention.head_count_kv", heads) *
      (number("attention.key_length", head) + number("attention.value_length", head));
  const gguf::Tensor* words = file.tensor("token_embd.weight");
  const std::int64_t vocabulary = words != nullptr ? words->shape.front() : 0;
  return static_cast<std::uint64_t>(number("block_count", 0) * layer * 2 * context +
                                    vocabulary * kAtOnce * 4);
}

/// Why heddle's own engine cannot serve a model, and what another needs for it. Nothing is said of
/// what others are to judge.
Need need_of(const Node& model, const std::string& directory) {
  const Node* path = child(model, "path");
  if (path == nullptr || path->kind != Node::Kind::kScalar || has_engine(model)) {
    return {};
  }
  const std::filesystem::path file = std::filesystem::path(directory) / path->text;
  if (!gguf::is_gguf(file) || !std::filesystem::exists(file)) {
    return {};
  }
  const Result<gguf::GgufFile> opened = gguf::GgufFile::open(file, gguf::Keep::kSmall);
  const Result<void> served = opened ? gguf::check_built_in(*opened) : Result<void>(opened.error());
  if (served || served.error().code != Code::kInvalidArgument) {
    return {};
  }
  Need need{.lack = served.error().message, .context = kContext, .memory = kBeside};
  if (opened) {
    gguf::MetadataFields fields(*opened);
    const std::string longest = fields.text("general.architecture") + ".context_length";
    need.context = std::clamp<std::int64_t>(fields.integer(longest, kContext), 1, kContext);
  }
  const Node* wanted = child(model, "context");
  const auto tokens = wanted != nullptr ? std::strtoll(wanted->text.c_str(), nullptr, 10) : 0;
  need.context = tokens > 0 && tokens < 1 << 30 ? tokens : need.context;
  need.memory += opened ? beside_weights(*opened, need.context) : 0;
  std::error_code ignored;
  for (const std::filesystem::path& part : gguf::part_paths(file)) {
    const std::uintmax_t bytes = std::filesystem::file_size(part, ignored);
    need.memory += ignored ? 0 : bytes;
  }
  return need;
}

Node scalar(std::string key, std::string text, int line) {
  return {.kind = Node::Kind::kScalar,
          .line = line,
          .key = std::move(key),
          .text = std::move(text),
          .quoted = true};
}

/// Makes the model one of an engine.
void hand_over(Node& model, const Need& need) {
  std::erase_if(model.children, [](const Node& each) { return each.key == "context"; });
  model.children.push_back(scalar("engine", std::string(kServer), model.line));
  model.children.push_back({.kind = Node::Kind::kList,
                            .line = model.line,
                            .key = "args",
                            .children = {scalar("", "-c", model.line),
                                         scalar("", std::to_string(need.context), model.line)}});
  if (child(model, "memory") == nullptr) {
    model.children.push_back(scalar("memory", std::to_string(need.memory), model.line));
  }
}

}  // namespace

std::string find_program(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    return access(name.c_str(), X_OK) == 0 ? name : std::string();
  }
  std::istringstream folders(environment("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

void fall_back(Node& root, const Environment& environment, Diagnosis& diagnosis) {
  const auto models = std::ranges::find(root.children, "models", &Node::key);
  if (models == root.children.end()) {
    return;
  }
  std::string server;
  for (Node& model : models->children) {
    const Need need = need_of(model, diagnosis.directory);
    if (need.lack.empty()) {
      continue;
    }
    server = server.empty() ? find_program(std::string(kServer), environment) : server;
    if (server.empty() || only_ours(model)) {
      continue;
    }
    hand_over(model, need);
    diagnosis.warnings.push_back(diagnosis.origin + ": models." + model.key + ": " + server +
                                 " serves it as an external engine, because of " + need.lack);
  }
}

}  // namespace heddle::config
