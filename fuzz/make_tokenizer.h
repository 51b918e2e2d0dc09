#pragma once

#include <string>

#include "choices.h"

namespace heddle::fuzz {

/// A tokenizer.json of parts of every kind with parameters that may not fit.
[[nodiscard]] std::string make_tokenizer(Choices& choices);

}  // namespace heddle::fuzz
