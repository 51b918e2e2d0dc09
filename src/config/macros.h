#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "config/document.h"
#include "config/reader.h"

namespace heddle::config {

/// Ports that were chosen for models, by their ids.
using Ports = std::map<std::string, std::uint16_t>;

/// Puts macros in place throughout a configuration, as llama-swap does: `${NAME}` of `macros:`, of
/// a model's own `macros:`, which go first, and `${MODEL_ID}` and `${PORT}` within models. Macros
/// may name others. A model gets a port, the next free one from `startPort` in the order of ids,
/// when it names `${PORT}`, or when it is run by us and nothing says where it listens. `${PID}` is
/// left where it is. Comments are taken out of commands before.
Ports expand_macros(Node& root, Diagnosis& diagnosis);

}  // namespace heddle::config
