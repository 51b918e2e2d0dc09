#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace heddle::config {

/// llama-swap's matrix: the sets of models that may run together.
struct Matrix {
  std::vector<std::pair<std::string, std::string>> vars{};  ///< Short names, to ids.
  /// Names, to expressions of models and variables: `&` both, `|` either, `(`, `)`, and `+name` for
  /// the expression of another set.
  std::vector<std::pair<std::string, std::string>> sets{};
};

/// Resolves Config::groups into ModelConfig::displaces. Engines that are in no group and whose
/// memory is not known form a group of their own for each device, which swaps and is exclusive: as
/// in llama-swap, of those only one is there at a time. An engine of known memory in no group
/// displaces nobody; that is decided by what fits.
void resolve_groups(Config& config, Diagnosis& diagnosis);

/// Likewise, from a matrix: a model displaces those engines with which it shares no set. (What a
/// model of our own displaces follows from memory, unless the matrix names it.)
void resolve_matrix(const Matrix& matrix, Config& config, Diagnosis& diagnosis);

}  // namespace heddle::config
