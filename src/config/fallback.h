#pragma once

#include <string>

#include "config/document.h"
#include "config/reader.h"

namespace heddle::config {

/// Where a shell would find a program, by PATH of `environment`; empty when it would not.
[[nodiscard]] std::string find_program(const std::string& name, const Environment& environment);

/// Has llama.cpp's server serve each GGUF file of this machine that heddle's own engine cannot,
/// because an architecture, a type or a tokenizer is not built in: as if the model said
/// `engine: llama-server`, with its `context` (8,192 tokens at most where it has none) as an
/// argument, and as `memory` its file, its KV and its logits by estimate. Warns of each. Models
/// stay as they are where no llama-server is installed, or where they have keys that engines do not
/// take: they are refused when they are opened.
void fall_back(Node& root, const Environment& environment, Diagnosis& diagnosis);

}  // namespace heddle::config
