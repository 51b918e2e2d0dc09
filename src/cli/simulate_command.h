#pragma once

#include <functional>

#include "cli/simulate.h"

namespace CLI {
class App;
}

namespace heddle::cli {

/// Adds the verb `simulate`, and `simulate explain`, to a program. When the user says it, `chosen`
/// becomes what is to be run.
void add_simulate_command(CLI::App& app, SimulateOptions& options, std::function<int()>& chosen);

}  // namespace heddle::cli
