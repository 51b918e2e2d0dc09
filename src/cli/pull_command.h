#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

/// Of `heddle pull`. Texts are as typed, and checked when it runs.
struct PullCommandOptions {
  std::vector<std::string> models{};
  std::string budget{};  ///< Of heddle's own cache: "200GB"; empty: none.
  std::string rate{};    ///< The most of all connections: "50MB/s"; empty: none.
  std::uint64_t connections = 8;
  bool json = false;
  bool list = false;  ///< Show what the caches hold instead.
};

/// Declares the verb; where it is chosen, `chosen` becomes what runs it.
void add_pull_command(CLI::App& app, PullCommandOptions& options, std::function<int()>& chosen);

/// Fetches models into the caches where serve finds them, or lists what these hold.
int pull(const PullCommandOptions& options);

}  // namespace heddle::cli
