#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/config_json.h"
#include "spec/model_spec.h"
#include "spec/operations.h"
#include "spec/sampling.h"
#include "text/text_model.h"

namespace heddle::gateway {

/// What the gateway needs of a model: how it reads and writes, and what requests may ask of it.
/// Immutable; any thread.
struct ModelText {
  std::string directory{};  ///< Where it was read from; not for clients.
  std::shared_ptr<const text::TextModel> text{};
  spec::GenerationDefaults defaults{};
  std::int64_t context = 0;  ///< Prompt and answer together [tokens].
  std::int64_t vocab = 0;    ///< Token ids are below this.
  std::int64_t hidden = 0;   ///< Numbers of an embedding.
  std::int64_t layers = 0;
  std::int64_t parameters = 0;  ///< Of all experts, where there are such.
  /// Of each layer that keeps keys and values.
  std::vector<spec::Heads> kv_heads{};
  spec::Pooling pooling = spec::Pooling::kLast;  ///< As sentence-transformers' files say.
  bool normalised = true;  ///< Embeddings have length 1: of decoders always, else as files say.
  /// Of an encoder, whose `context` is the longest of its texts.
  spec::Encoder encoder{};
  spec::Experts experts{};
  spec::Architecture architecture{};

  /// What a token takes in the KV of all layers [bytes], as keys and values of that type.
  [[nodiscard]] std::uint64_t kv_token_bytes(spec::DType kv) const;
  [[nodiscard]] bool encodes() const { return encoder.positions > 0; }
  /// Tokens of the longest text that can stand for itself: behind a decoder's one more has room.
  [[nodiscard]] std::int64_t longest_text() const { return encodes() ? context : context - 1; }
};

/// Reads a model directory: tokenizer, sentence-transformers' files of an encoder, templates,
/// config.json and generation_config.json. Slow; not for the loop thread.
/// @param context_cap  Upper bound of the context length [tokens]; 0 leaves the model's own.
Result<std::shared_ptr<const ModelText>> open_model_text(const std::filesystem::path& directory,
                                                         std::int64_t context_cap);

/// The context length of a model directory or file alone, read from its config.json, which is
/// quick; 0 where that cannot be read. `context_cap` as above.
[[nodiscard]] std::int64_t read_context(const std::filesystem::path& directory,
                                        std::int64_t context_cap);

}  // namespace heddle::gateway
