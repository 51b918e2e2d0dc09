#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace heddle::cli {

/// Takes `--listen` in place of the configuration's addresses, where there is any; an address that
/// is none is an error that says so.
Result<void> listen_instead(const std::vector<std::string>& listen, config::Config& config);

/// Of each address that others than this machine may reach while no key is asked for: a warning.
[[nodiscard]] std::vector<std::string> open_doors(const config::Config& config);

/// Arguments as heddle's parser reads them: llama-swap's `-config`, `-listen` and `-watch-config`
/// get their second dash.
[[nodiscard]] std::vector<std::string> with_two_dashes(std::vector<std::string> arguments);

}  // namespace heddle::cli
