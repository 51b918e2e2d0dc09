#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "config/fields.h"
#include "spec/engine.h"

namespace heddle::lab {

/// A way of suspending an engine, and of having it back.
struct SuspensionTimes {
  Duration out{};
  Duration in{};             ///< Its probe included.
  std::uint64_t memory = 0;  ///< That it keeps of all its devices together [bytes].
  std::uint64_t host = 0;    ///< That what was saved takes of host memory [bytes].
};

/// What an external engine takes and holds: as an experiment says, or as was measured.
struct EngineTimes {
  Duration start{};  ///< Until it was probed.
  Duration stop{};
  std::uint64_t memory = 0;  ///< While it runs, of all its devices together [bytes].
  std::map<spec::SuspendLevel, SuspensionTimes> suspend{};  ///< By each of its levels but kStop.
  Duration first_token{};
  Duration prompt_token{};  ///< Later for each token of the prompt.
  Duration token{};         ///< From one token to the next.
};

/// The keys by which an experiment says that.
void declare_engine_times(config::Fields& f, EngineTimes& times);

/// Starts the engine of a model, suspends and resumes it by each of its levels, asks it a few
/// times, one request after the other, and ends it; for that long nothing else is to run. Errors as
/// external::ExternalEngine has them, or bench::run(), with the name of the model before them.
Result<EngineTimes> time_engine(const config::ModelConfig& model, bool accelerator);

}  // namespace heddle::lab
