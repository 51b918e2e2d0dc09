#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/simulate_files.h"
#include "config/config.h"

namespace heddle::cli {

/// What the models of a server's configuration are to a simulator.
struct ConfiguredRules {
  std::vector<ModelRule> rules{};    ///< Of each name and alias.
  std::vector<std::string> notes{};  ///< What is left out, and what is taken for something else.
};

/// Reads a server's configuration and looks at the directory of each of its models: dimensions and
/// context; `slo`, `batch` and devices in parallel are the configuration's. A model whose directory
/// is not there, or which an external engine serves, has no rule and a note. Weights count with 16
/// bits, as all do here.
///
/// As config::load_config() fails; kNotFound where `perf` has no engine "heddle"; kInvalidArgument
/// where no model is left.
Result<ConfiguredRules> configured_rules(const std::string& file, const PerfData& perf);

}  // namespace heddle::cli
