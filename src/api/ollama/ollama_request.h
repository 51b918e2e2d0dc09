#pragma once

#include <string>
#include <string_view>

#include "api/embeddings.h"
#include "api/error.h"
#include "api/requests.h"

namespace heddle::api {

/// A body of POST /api/chat or /api/generate, as the chat that it amounts to.
struct OllamaRequest {
  ChatRequest chat{};
  /// Nothing is asked: the model shall just be loaded or, with a `keep_alive` of 0, unloaded.
  bool empty = false;
  bool raw = false;      ///< `prompt` is taken as it is, without the model's template.
  std::string prompt{};  ///< With `raw`; the chat then has the model and the parameters alone.
};

/// As the parsers of requests.h. A prompt of /api/generate is a chat of one message, unless it is
/// `raw`. `suffix`, `template` and `context` are refused, and so are images.
[[nodiscard]] Parsed<OllamaRequest> parse_ollama_chat(std::string_view body);
[[nodiscard]] Parsed<OllamaRequest> parse_ollama_generate(std::string_view body);

/// Bodies of POST /api/embed and of its older form, POST /api/embeddings.
[[nodiscard]] Parsed<EmbeddingRequest> parse_ollama_embed(std::string_view body);
[[nodiscard]] Parsed<EmbeddingRequest> parse_ollama_embeddings(std::string_view body);

/// `{"model": ...}`, or `name` as it was called before: of POST /api/show and /api/pull.
struct OllamaModel {
  std::string model{};
  bool stream = true;
};
[[nodiscard]] Parsed<OllamaModel> parse_ollama_model(std::string_view body);

}  // namespace heddle::api
