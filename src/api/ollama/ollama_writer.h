#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/answer_writer.h"

namespace heddle::api {

/// Which of Ollama's endpoints answers: one has a `message`, the other a `response`.
enum class OllamaForm : std::uint8_t { kChat, kGenerate };

/// The writer of /api/chat and /api/generate: an object, or a stream of them, one a line; the last
/// has `done`, counts of tokens and durations in nanoseconds.
/// @param now  Nanoseconds since 1970.
[[nodiscard]] std::unique_ptr<AnswerWriter> ollama_writer(AnswerHead head,
                                                          OllamaForm form,
                                                          std::function<std::int64_t()> now);

/// What a request that asks nothing gets: `reason` is "load" or "unload".
[[nodiscard]] std::string ollama_loaded_json(const std::string& model,
                                             OllamaForm form,
                                             std::int64_t now,
                                             std::string_view reason);

}  // namespace heddle::api
