#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"
#include "config/fields.h"
#include "config/macros.h"
#include "config/residency.h"

namespace heddle::config {

/// What a file says of all engines, and what has no place in Config because it is worked into it.
struct SwapSettings {
  std::string directory{};  ///< Of the file; relative paths start here.
  Ports ports{};            ///< Of models that were given one.
  Matrix matrix{};
  bool use_matrix = false;
  Duration start_timeout{};  ///< 0: what the kind of the engine suggests.
  Duration stop_timeout = 10s;
  Duration ttl{};
  bool loading_state = false;
  /// Ids of models, to how much sooner their requests are served (JSON integers).
  std::vector<std::pair<std::string, std::string>> priorities{};
};

/// Keys of a model that only heddle's own engine takes.
[[nodiscard]] std::span<const std::string_view> native_keys();

/// The keys for all engines: those before `models`.
void declare_engine_defaults(Fields& f, SwapSettings& settings);
/// Those that name models: groups, matrix, routing, hooks.
void declare_swapping(Fields& f, Config& config, SwapSettings& settings);
/// The keys that change bodies of requests, whatever model they name.
void declare_body_filters(Fields& f, RequestFilters& filters);
/// The keys of a model that an engine serves. Sets ModelConfig::engine where there is one.
void declare_engine(Fields& f, const SwapSettings& settings, ModelConfig& model);

/// Completes engines once everything was read: devices, levels, names; and refuses what can never
/// run: two on one port, one that is larger than its device. Of engines that hosts place for
/// themselves, settle_engines() does what their devices decide.
void complete_engines(Config& config,
                      const SwapSettings& settings,
                      EnginePlaces places,
                      Diagnosis& diagnosis);

}  // namespace heddle::config
