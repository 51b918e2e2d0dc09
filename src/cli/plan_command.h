#pragma once

#include <functional>

#include "cli/plan.h"

namespace CLI {
class App;
}

namespace heddle::cli {

/// Adds the verb `plan` to a program. When the user says it, `chosen` becomes what is to be run.
void add_plan_command(CLI::App& app, PlanOptions& options, std::function<int()>& chosen);

}  // namespace heddle::cli
