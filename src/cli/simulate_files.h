#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/cluster.h"

namespace heddle::cli {

/// The constants that simulations are made of, each with its name.
struct PerfData {
  std::vector<sim::GpuProfile> gpus{};
  std::vector<std::pair<std::string, sim::ModelShape>> shapes{};
  std::vector<std::pair<std::string, sim::EngineProfile>> engines{};
  std::vector<std::pair<std::string, sim::StartupProfile>> platforms{};
};

/// Which model of the workload is what. A label ends in '*' when it stands for all that begin so.
struct ModelRule {
  std::string label{};
  sim::ModelSpec spec{};
};

/// Where the constants are. What is `named` is as it stands or, relative, in the working directory,
/// else beside the cluster file. Without a name: data/perf in the working directory, beside the
/// cluster file, or beside the program, or above one of these. kNotFound lists what was tried.
Result<std::string> find_perf_folder(const std::string& named, const std::string& cluster_file);

/// Reads gpus.yaml, models.yaml, engines.yaml and platforms.yaml in `folder`. Errors list all
/// problems with file, line, key and what would be right, as for every file here.
Result<PerfData> load_perf_data(const std::string& folder);

Result<sim::ClusterSpec> load_cluster(const std::string& file, const PerfData& perf);

/// In the order of the file: the first rule whose label fits decides.
Result<std::vector<ModelRule>> load_model_rules(const std::string& file, const PerfData& perf);

/// The specification of a label; kNotFound when no rule fits.
Result<sim::ModelSpec> find_model(const std::vector<ModelRule>& rules, const std::string& label);

/// Number of seconds per byte: "0.54s/GB".
Result<double> parse_seconds_per_byte(std::string_view text);

}  // namespace heddle::cli
