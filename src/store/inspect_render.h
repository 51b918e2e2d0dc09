#pragma once

#include <string>

#include "store/inspect.h"

namespace heddle::store {

/// For a terminal: lines of "label  value", 100 columns mostly. Control characters that come from
/// the files are made harmless.
[[nodiscard]] std::string render_text(const Inspection& inspection);

/// For programs: one JSON object.
[[nodiscard]] std::string render_json(const Inspection& inspection);

}  // namespace heddle::store
