#pragma once

#include "cli/replay.h"

namespace CLI {
class App;
}

namespace heddle::cli {

/// Adds to a verb what says which requests are replayed. Where they are is the verb's own option.
void add_replay_options(CLI::App& verb, ReplayOptions& options);

}  // namespace heddle::cli
