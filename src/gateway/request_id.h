#pragma once

#include <string>
#include <string_view>

#include "base/rng.h"

namespace heddle::gateway {

/// Whether a client's id may be passed on: at most 128 letters, digits and "-_.:".
[[nodiscard]] bool is_sane_request_id(std::string_view id);

/// 60 bits: such an id is copied a few times, and strings of 15 letters need no memory of their
/// own.
[[nodiscard]] std::string draw_request_id(Rng& rng);

}  // namespace heddle::gateway
