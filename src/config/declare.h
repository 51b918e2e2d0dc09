#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/engine_declare.h"
#include "config/fields.h"

namespace heddle::config {

/// Names every key of the configuration, once, to a reader or to the schema writer.
void declare(Fields& fields, Config& config, SwapSettings& settings);

/// Parses CPU numbers such as "0-3,6". kInvalidArgument for anything else.
Result<std::vector<int>> parse_cores(std::string_view text);
/// The inverse: "0-3,6".
[[nodiscard]] std::string format_cores(const std::vector<int>& cores);

}  // namespace heddle::config
