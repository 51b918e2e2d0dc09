#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/responses.h"

/// Models, vectors and news of a download as Ollama's clients know them.
namespace heddle::api {

/// A model in a listing.
struct OllamaModelObject {
  std::string name{};    ///< As heddle has it.
  std::string digest{};  ///< 64 hexadecimal digits.
  std::uint64_t size = 0;
  std::int64_t modified = 0;  ///< Nanoseconds since 1970.
  std::string format{};       ///< "gguf", "safetensors"; empty where it is not known.
  std::string family{};       ///< "qwen3"; likewise.
  std::string quantization{};
  std::int64_t parameters = 0;  ///< 0 where it is not known.
  std::int64_t expires = 0;     ///< Nanoseconds since 1970. Of /api/ps alone, as the next two.
  std::uint64_t size_vram = 0;  ///< That are on a GPU.
  std::int64_t context = 0;     ///< Tokens; 0 where it is not known. Of /api/show, too.
};

/// The name with a tag, which Ollama's clients expect: "adder:latest".
[[nodiscard]] std::string ollama_name(const std::string& name);

/// Of GET /api/tags: all models.
[[nodiscard]] std::string ollama_tags_json(const std::vector<OllamaModelObject>& models);
/// Of GET /api/ps: those in memory.
[[nodiscard]] std::string ollama_running_json(const std::vector<OllamaModelObject>& models);

/// What POST /api/show tells beside.
struct OllamaDetails {
  std::vector<std::string> capabilities{};  ///< completion, tools, thinking, embedding.
  std::string parameters{};                 ///< Lines of a name and a value.
  std::int64_t embedding = 0;               ///< Numbers of a vector; 0 where it is not known.
  std::int64_t layers = 0;                  ///< Likewise.
  std::int64_t experts = 0;                 ///< In a layer; 0: there are none.
  std::int64_t experts_used = 0;            ///< By a token, of those.
};
[[nodiscard]] std::string ollama_show_json(const OllamaModelObject& model,
                                           const OllamaDetails& details);

/// Of POST /api/embed, and of POST /api/embeddings, which has one vector alone.
[[nodiscard]] std::string ollama_embed_json(const std::string& model,
                                            const std::vector<std::vector<float>>& embeddings,
                                            const Usage& usage);
[[nodiscard]] std::string ollama_embeddings_json(const std::vector<float>& embedding);

/// A line about how far a model is.
/// @param total  Bytes; with 0 they are not told.
[[nodiscard]] std::string ollama_status_line(std::string_view status,
                                             const std::string& digest = {},
                                             std::uint64_t completed = 0,
                                             std::uint64_t total = 0);

}  // namespace heddle::api
