// `heddle simulate` by itself: what the tests of determinism build for two instruction sets.
#include <functional>

#include "cli/simulate_command.h"

#include <CLI/CLI.hpp>

int main(int count, char** arguments) {
  CLI::App app("heddle simulate");
  app.require_subcommand(1);
  std::function<int()> chosen;
  heddle::cli::SimulateOptions options;
  heddle::cli::add_simulate_command(app, options, chosen);
  CLI11_PARSE(app, count, arguments);
  return chosen();
}
