#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/adapters.h"
#include "config/config.h"

namespace heddle::solo {

/// The LoRA adapters that were loaded into a running server, over those of its file. They stay
/// while it runs, whatever is reloaded meanwhile, as long as the file has their bases and gives
/// their names to nothing else.
class LoadedAdapters {
 public:
  /// So many at most, as each reload looks at all of them.
  static constexpr std::size_t kMost = 128;

  /// What would be with a change, and the configuration that goes with it.
  struct Plan;

  /// With one more; with `in_place`, also instead of the one of its name. Errors as
  /// config::add_adapter(); kInvalidArgument where there is one of that name, or there are kMost.
  [[nodiscard]] Result<Plan> with(const config::Config& file,
                                  const config::LoadedAdapter& adapter,
                                  bool in_place) const;
  /// Without the one of this name. kNotFound where none is called so, kInvalidArgument where it is
  /// the file's.
  [[nodiscard]] Result<Plan> without(const config::Config& file, const std::string& name) const;
  /// Adds them to what the file says, and forgets those that cannot be any more, of which it
  /// returns the names and why.
  std::vector<std::string> lay_over(config::Config& file);

 private:
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] Result<Plan> plan(config::Config file) const;

  std::vector<config::LoadedAdapter> adapters_{};  ///< In the order in which they came.
};

struct LoadedAdapters::Plan {
  LoadedAdapters adapters{};
  config::Config config{};
  std::string base{};  ///< Of the last of them.
};

}  // namespace heddle::solo
