#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

/// Where the runs of an experiment take place.
enum class LabMode : std::uint8_t {
  kLive,     ///< On a miniature cluster.
  kPredict,  ///< In virtual time, with constants that are measured before.
  kBoth,     ///< On both, to see how well the second tells the first.
};

struct LabOptions {
  std::string file{};
  std::vector<std::string> policies{};  ///< Of the file's, these; empty: all.
  std::string seeds{};  ///< "3" for 0 to 2, or "3..5"; empty: as many as the file says.
  LabMode mode = LabMode::kLive;
  std::string out{};  ///< Folder for the report and the logs; empty: neither is kept.
};

/// Runs an experiment on a miniature cluster: servers of our own, one after the other.
int lab(const LabOptions& options);

/// Adds the verb `lab` to the command line; sets `chosen` when it is named.
void add_lab_command(CLI::App& app, LabOptions& options, std::function<int()>& chosen);

}  // namespace heddle::cli
