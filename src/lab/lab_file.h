#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "config/document.h"
#include "lab/drawn_trace.h"
#include "lab/engine_times.h"

namespace heddle::lab {

/// Part of a trace that is in a file. Times are those of the file.
struct TraceFile {
  std::string path{};
  Duration from{};    ///< Earlier rows are left out.
  Duration window{};  ///< Seed i takes the i-th stretch of this length; 0: all, each time.
  double keep = 1;    ///< Of the rows, this part, drawn by the seed.
  double length = 1;  ///< Tokens of inputs and outputs are so many times as many.
  std::int64_t most_input = 0;   ///< Longer ones are cut [tokens]; 0: none are.
  std::int64_t most_output = 0;  ///< Likewise.
};

/// A host of a cluster.
struct LabHost {
  std::string name{};
  config::Node document{};  ///< Its configuration: the policy's, with what is the host's over it.
  config::Config config{};  ///< The same, read.
};

/// One way to run the miniature cluster.
struct LabPolicy {
  std::string name{};
  config::Node document{};  ///< Its configuration: that of the experiment with its own over it.
  config::Config config{};  ///< The same, read.
  std::vector<LabHost> hosts{};  ///< Of a cluster; none: one server has the policy's devices.
};

/// A device under the name by which the running system tells of it, such as "h1/a".
struct LabDevice {
  std::string name{};
  const config::DeviceConfig* config = nullptr;
};

/// An experiment: docs/guide/lab.md.
struct LabFile {
  std::string file{};
  std::string directory{};  ///< Of the file; relative paths start there.
  std::optional<TraceFile> trace{};
  std::optional<DrawnTrace> drawn{};  ///< Exactly one of the two.
  double scale = 1;                   ///< The trace's time goes by so many times as fast.
  std::int64_t first_seed = 0;
  std::int64_t seeds = 1;  ///< Runs of each policy, by seeds from the first on.
  Duration warmup{};       ///< What arrives before is sent and not counted [of the run's own time].
  Duration patience = std::chrono::minutes(2);  ///< For one request.
  bool check = false;  ///< Answers of policies are compared: tokens and log probabilities.
  /// No host has a model when a run begins: each fetches what it loads, at the rate of its
  /// `host.nic`, into a cache that is its own and the run's.
  bool cold = false;
  /// What predictions take external engines to do, by model; the others' are measured.
  std::map<std::string, EngineTimes> engines{};
  std::vector<LabPolicy> policies{};  ///< Never empty; the first is what others are held against.
};

/// Parses YAML or JSON. The error lists all problems, a line each: file, line, key, value and what
/// would be right; those of configurations as config::parse_config has them.
Result<LabFile> parse_lab_file(std::string_view text,
                               const std::string& file,
                               const config::Environment& environment,
                               const config::Machine& machine);

/// Has it run other seeds than the file says: "3" stands for 0 to 2, "3..5" for itself.
/// kInvalidArgument when the text is neither, or more than a thousand.
Result<void> choose_seeds(std::string_view text, LabFile& lab);

/// All devices of the policy's hosts, or of its only server, while the policy is there.
[[nodiscard]] std::vector<LabDevice> devices_of(const LabPolicy& policy);

/// The model of that name, which must be there.
[[nodiscard]] const config::ModelConfig& model_called(const config::Config& config,
                                                      const std::string& name);

/// Names of the models that are asked, in the order of the file; the same under all policies.
[[nodiscard]] std::vector<std::string> model_names(const LabFile& lab);

/// Reads and parses a file, for this machine and environment. kNotFound when it cannot be read.
Result<LabFile> load_lab_file(const std::string& file);

/// `over` put over `under`: maps key by key, all else as a whole.
[[nodiscard]] config::Node merge(const config::Node& under, const config::Node& over);

}  // namespace heddle::lab
