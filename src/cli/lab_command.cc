#include "cli/lab_command.h"

#include <map>
#include <string>

#include <CLI/CLI.hpp>

namespace heddle::cli {

void add_lab_command(CLI::App& app, LabOptions& options, std::function<int()>& chosen) {
  CLI::App* verb =
      app.add_subcommand("lab", "Run an experiment on a miniature cluster and compare policies");
  verb->add_option("file", options.file, "The experiment (YAML)")->required();
  verb->add_option("-p,--policy", options.policies, "Of its policies, these: a b")->delimiter(',');
  verb->add_option("-s,--seeds",
                   options.seeds,
                   "Runs of each policy, instead of the file's: 3 for seeds 0 to 2, or 3..5");
  verb->add_option("-o,--out", options.out, "Folder for the report, the requests and the logs");
  verb->add_option("-m,--mode",
                   options.mode,
                   "live: on a miniature cluster; predict: in virtual time, with measured "
                   "constants; both: one beside the other")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, LabMode>{
              {"live", LabMode::kLive}, {"predict", LabMode::kPredict}, {"both", LabMode::kBoth}},
          CLI::ignore_case));
  verb->callback([&] { chosen = [&] { return lab(options); }; });
}

}  // namespace heddle::cli
