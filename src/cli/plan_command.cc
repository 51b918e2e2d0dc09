#include "cli/plan_command.h"

#include "cli/replay_options.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {
void add_plan_command(CLI::App& app, PlanOptions& options, std::function<int()>& chosen) {
  CLI::App* verb =
      app.add_subcommand("plan", "Say how many servers of which kind a workload needs");
  verb->add_option(
      "-c,--hardware",
      options.replay.cluster,
      "Kinds of servers (YAML, as heddle simulate's clusters; counts do not matter, "
      "price: 2.5 is an hour's); else the cluster.yaml that heddle calibrate wrote into "
      "--perf");
  options.replay.draw.draws = 3;  // So that an interval is not of one draw alone.
  add_replay_options(*verb, options.replay);
  verb->add_option("-a,--attainment",
                   options.target,
                   "Percent of all requests that are to meet their objectives")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  verb->add_option("--most", options.most, "Servers of a kind at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str();
  verb->add_option("--sample",
                   options.sample,
                   "Requests that are replayed at each size at most: of a longer trace, stretches "
                   "from all of its time; 0 is all of them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--jobs", options.threads, "Threads; else one for each core, up to eight")
      ->check(CLI::Range(std::size_t{1}, std::size_t{256}));
  verb->add_option("-p,--policy", options.policy, "A policy set of heddle simulate, with its flags")
      ->capture_default_str();
  verb->add_option("--json", options.json, "Write all numbers here; - is stdout");
  verb->add_option("--html", options.html, "Write a page with pictures here");
  verb->callback([&] { chosen = [&] { return plan(options); }; });
}

}  // namespace heddle::cli
