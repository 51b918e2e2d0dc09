#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cli/lab_command.h"
#include "cli/simulate_trace.h"
#include "cli/terminal.h"
#include "lab/answers.h"
#include "lab/experiment.h"
#include "lab/prediction.h"
#include "lab/report.h"
#include "lab/shots.h"

namespace heddle::cli {

namespace {

/// Each run is predicted so many times where it is held against what was measured: that is one of
/// the runs that it could have been.
constexpr std::int64_t kPlays = 8;

/// A folder that is gone when this is.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-lab-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_{};
};

/// Leaves only the policies that were asked for.
Result<void> select(const std::vector<std::string>& names, lab::LabFile& lab) {
  std::vector<lab::LabPolicy> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(lab.policies.begin(),
                                    lab.policies.end(),
                                    [&](const lab::LabPolicy& each) { return each.name == name; });
    if (found == lab.policies.end()) {
      std::string known;
      for (const lab::LabPolicy& policy : lab.policies) {
        known += " " + policy.name;
      }
      return Error{
          .code = Code::kNotFound,
          .message = "--policy: \"" + name + "\" is not in " + lab.file + "; there are:" + known};
    }
    chosen.push_back(*found);
  }
  if (!chosen.empty()) {
    lab.policies = std::move(chosen);
  }
  return {};
}

/// The rows of the experiment's trace, if that is a file.
Result<std::vector<lab::TraceFileRow>> read_rows(const lab::LabFile& lab) {
  std::vector<lab::TraceFileRow> rows;
  if (!lab.trace) {
    return rows;
  }
  const TraceOptions options{.file = lab.trace->path};
  const Result<TraceSummary> summary = survey_trace(options, {ModelRule{.label = "*"}});
  if (!summary) {
    return summary.error();
  }
  for (const std::string& problem : summary->problems) {
    std::fprintf(stderr, "heddle: %s\n", printable(problem).c_str());
  }
  const auto source = open_trace(options, summary->models, nullptr);
  if (!source) {
    return source.error();
  }
  sim::TraceRow row;
  while ((*source)->next(row)) {
    rows.push_back({.at = row.arrival.time_since_epoch(),
                    .label = summary->models[row.model.value()].name,
                    .input_tokens = row.input_tokens,
                    .output_tokens = row.output_tokens});
  }
  return rows;
}

/// Draws how far the experiment is.
class Display {
 public:
  Display(std::size_t runs) : runs_(runs), bar_(stderr_is_terminal()) {}

  void begin(const std::string& policy, std::int64_t seed, std::size_t shots) {
    name_ = policy + ", seed " + std::to_string(seed);
    shots_ = shots;
    if (!bar_) {
      std::fprintf(
          stderr, "%s: %zu requests (run %zu of %zu)\n", name_.c_str(), shots, done_ + 1, runs_);
    }
  }
  void show(const bench::Progress& progress) const {
    if (bar_) {
      const double part = static_cast<double>(progress.ended) / static_cast<double>(shots_);
      show_bar(name_ + ": " + std::to_string(progress.begun) + " begun, " +
                   std::to_string(progress.ended) + " ended, " + std::to_string(progress.failed) +
                   " failed",
               (static_cast<double>(done_) + part) / static_cast<double>(runs_));
    }
  }
  void end() {
    ++done_;
    if (bar_) {
      show_bar("", std::nullopt);
    }
  }

 private:
  std::size_t runs_;
  bool bar_;
  std::size_t done_ = 0;
  std::size_t shots_ = 1;
  std::string name_{};
};

/// What all the runs of an experiment gave; of a mode that was not asked for, nothing.
struct Outcome {
  std::vector<lab::LabRun> measured{};
  std::vector<lab::LabRun> predicted{};
};

Result<lab::Constants> measure(const lab::LabFile& lab) {
  const bool bar = stderr_is_terminal();
  Result<lab::Constants> constants = lab::measure_constants(lab, [bar](double part) {
    if (bar) {
      show_bar("measuring the device", part);
    }
  });
  if (bar) {
    show_bar("", std::nullopt);
  }
  return constants;
}

/// Seed by seed, so that what changes about the machine meanwhile meets all policies alike.
Result<Outcome> run_all(const lab::LabFile& lab, LabMode mode, const std::string& folder) {
  const Result<std::vector<lab::TraceFileRow>> rows = read_rows(lab);
  if (!rows) {
    return rows.error();
  }
  lab::Constants constants;
  if (mode != LabMode::kLive) {
    Result<lab::Constants> measured = measure(lab);
    if (!measured) {
      return measured.error();
    }
    constants = std::move(measured).value();
  }
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  lab::Experiment experiment(lab, program.string(), std::filesystem::absolute(folder).string());
  Display display(lab.policies.size() * static_cast<std::size_t>(lab.seeds));
  Outcome outcome;
  const auto keep = [](const lab::LabPolicy& policy,
                       std::int64_t seed,
                       Result<lab::LabRun> run,
                       std::vector<lab::LabRun>& runs) -> Result<void> {
    if (!run) {
      return Error{
          .code = run.error().code,
          .message = policy.name + ", seed " + std::to_string(seed) + ": " + run.error().message};
    }
    runs.push_back(std::move(run).value());
    return {};
  };
  for (std::int64_t seed = lab.first_seed; seed < lab.first_seed + lab.seeds; ++seed) {
    const Result<std::vector<bench::Shot>> shots = lab::take_shots(lab, *rows, seed);
    if (!shots) {
      return shots.error();
    }
    for (const lab::LabPolicy& policy : lab.policies) {
      Result<void> kept;
      if (mode != LabMode::kPredict) {
        display.begin(policy.name, seed, shots->size());
        auto run = experiment.run(
            policy, seed, *shots, [&](const bench::Progress& progress) { display.show(progress); });
        display.end();
        kept = keep(policy, seed, std::move(run), outcome.measured);
      }
      const std::int64_t plays = mode == LabMode::kBoth      ? kPlays
                                 : mode == LabMode::kPredict ? 1
                                                             : 0;
      for (std::int64_t play = 0; play < plays && kept; ++play) {
        kept = keep(policy,
                    seed,
                    lab::predict_run(lab, policy, seed, *shots, constants, play),
                    outcome.predicted);
      }
      if (!kept) {
        return kept.error();
      }
    }
  }
  return outcome;
}

std::string command_of(const LabOptions& options) {
  std::string text = "heddle lab " + options.file;
  for (std::size_t i = 0; i < options.policies.size(); ++i) {
    text += (i == 0 ? " --policy " : ",") + options.policies[i];
  }
  text += options.mode == LabMode::kPredict ? " --mode predict"
          : options.mode == LabMode::kBoth  ? " --mode both"
                                            : "";
  return text + (options.seeds.empty() ? "" : " --seeds " + options.seeds);
}

Result<void> write_file(const std::string& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary);
  if (!(stream << text) || !stream.flush()) {
    return Error{.code = Code::kUnavailable, .message = file + ": cannot be written"};
  }
  return {};
}

/// Writes what was found out. The exit status: 1 where a run is invalid, or answers differ.
int tell(const LabOptions& options, const lab::LabFile& lab, const Outcome& outcome) {
  const std::vector<sim::Objective> objectives = lab::objectives(lab);
  const bool live = options.mode != LabMode::kPredict;
  const std::vector<lab::PolicySummary> policies =
      lab::summarise(live ? outcome.measured : outcome.predicted, objectives);
  if (!live) {
    std::printf("Predicted, in virtual time: no server was run.\n\n");
  }
  std::fputs(printable(format_table(lab::figure_table(policies))).c_str(), stdout);
  if (policies.size() > 1) {
    std::printf("\n%s", printable(format_table(lab::comparison_table(policies))).c_str());
  }
  if (options.mode == LabMode::kBoth) {
    const auto predicted = lab::summarise(outcome.predicted, objectives);
    std::printf("\n%s",
                printable(format_table(lab::prediction_table(policies, predicted))).c_str());
  }
  bool differ = false;
  for (const lab::Agreement& agreement : lab::compare_answers(policies)) {
    differ = differ || agreement.differing > 0;
    if (live && lab.check && agreement.differing == 0) {
      std::printf("%s\n", printable(describe(agreement, policies.front().policy)).c_str());
    }
  }
  for (const std::string& note : lab::report_notes(policies)) {
    std::printf("%s\n", printable(note).c_str());
  }
  if (!options.out.empty()) {
    const std::string command = command_of(options);
    for (const auto& [name, text] :
         {std::pair("/report.json", lab::report_json(lab, policies, command)),
          {"/report.html", lab::report_html(lab, policies, command)},
          {"/requests.csv", lab::report_csv(lab, policies)}}) {
      if (const Result<void> written = write_file(options.out + name, text); !written) {
        return fail(written.error());
      }
    }
  }
  return lab::invalid_runs(policies).empty() && !differ ? 0 : 1;
}

}  // namespace

int lab(const LabOptions& options) {
  Result<lab::LabFile> lab = lab::load_lab_file(options.file);
  if (!lab) {
    return fail(lab.error());
  }
  const Result<void> selected = select(options.policies, *lab);
  if (!selected) {
    return fail(selected.error());
  }
  if (!options.seeds.empty()) {
    const Result<void> seeds = lab::choose_seeds(options.seeds, *lab);
    if (!seeds) {
      return fail({.code = seeds.error().code, .message = "--seeds: " + seeds.error().message});
    }
  }
  const TemporaryFolder temporary;
  const std::string folder = options.out.empty() ? temporary.path() : options.out;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return fail({.code = Code::kUnavailable, .message = folder + ": " + failure.message()});
  }
  const Result<Outcome> outcome = run_all(*lab, options.mode, folder);
  return outcome ? tell(options, *lab, *outcome) : fail(outcome.error());
}

}  // namespace heddle::cli
