#pragma once

#include <string>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads what Ollama's requests for text have in common: `options`, `format`, `stream` (which is
/// true where it is not given), `keep_alive`, `logprobs` and `top_logprobs`. Options that say how
/// Ollama uses a machine (`num_gpu`, `num_ctx` and such) have no meaning here and are not looked
/// at. What is wrong is kept in `body`.
[[nodiscard]] GenerationParams read_ollama_params(BodyReader& body);

/// Reads `think` into the variables of a chat template, a JSON object; "{}" where it is not given.
[[nodiscard]] std::string read_ollama_thinking(BodyReader& body);

}  // namespace heddle::api
