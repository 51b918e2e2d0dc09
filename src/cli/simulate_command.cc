#include "cli/simulate_command.h"

#include <map>

#include "cli/replay_options.h"
#include "sim/planes/planes.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {

namespace {

std::string list_policies() {
  std::string text = "\nPolicies (flags as name:flag=value,flag=value):\n";
  for (const sim::PlaneEntry& entry : sim::plane_entries()) {
    text += "  " + std::string(entry.name);
    text += std::string(entry.name.size() < 17 ? 17 - entry.name.size() : 1, ' ');
    text += std::string(entry.about) + "\n";
    if (!entry.flags.empty()) {
      text += std::string(19, ' ') + "flags: " + std::string(entry.flags) + "\n";
    }
  }
  return text;
}

}  // namespace

void add_simulate_command(CLI::App& app, SimulateOptions& options, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("simulate", "Replay a workload on a modelled cluster");
  verb->footer(list_policies());
  verb->add_option("-c,--cluster", options.replay.cluster, "Servers, GPUs and links (YAML)")
      ->required();
  add_replay_options(*verb, options.replay);
  verb->add_option_function<std::string>(
          "-p,--policy,--compare",
          [&](const std::string& text) { options.policies = split_policies(text); },
          "Policy sets to run, with commas between them")
      ->default_str(options.policies[0]);
  verb->add_option(
      "--sweep", options.sweep, "Run at several rates: rps=5..30, or rps=5..30:2.5 with a step");
  verb->add_option("--faults", options.faults, "Script of faults, or random:SEED:COUNT");
  verb->add_option("--json", options.json, "Write all numbers here; - is stdout");
  verb->add_option("--csv", options.csv, "Write a row per request here");
  verb->add_option("--html", options.html, "Write a page with pictures here");
  verb->add_flag("--check", options.check, "Check all invariants after every event (slow)");
  verb->callback([&] { chosen = [&] { return simulate(options); }; });
  CLI::App* why = verb->add_subcommand("explain", "Tell why one request took as long as it did");
  why->fallthrough();
  why->add_option("request", options.explain, "Its number in the trace, from 0")->required();
}

}  // namespace heddle::cli
