#pragma once

#include <string>

#include "choices.h"
#include "spec/sampling.h"

namespace heddle::fuzz {

/// A grammar of the given kind that is well-formed for the most part: definitions that refer to
/// each other in chains, in all directions, and so that copies multiply.
[[nodiscard]] std::string make_grammar(spec::GrammarKind kind, Choices& choices);

}  // namespace heddle::fuzz
