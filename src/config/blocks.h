#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "spec/dtype.h"

namespace heddle::config {

/// The blocks of devices that a model can be sharded over, or cut into stages for: of the devices
/// that run models, in the order of the configuration, the first `size`, the next, and so on, where
/// all of a block have as much memory, a prefix cache or none, and copy weights or do not. Blocks
/// of different sizes are disjoint or nested. Indices into Config::devices.
[[nodiscard]] std::vector<std::vector<std::size_t>> device_blocks(const Config& config,
                                                                  std::int64_t size);

/// What is wrong with the devices that models are to run on: there is none of that name, or it runs
/// none of our models; there is no block for one that is to be sharded, or it is to be on certain
/// devices too, or an external engine serves it. In a cluster stages need no block of one host. A
/// line each, without the file's name.
/// @param by_host  The devices are each host's own, and so is whether there are blocks.
[[nodiscard]] std::vector<std::string> block_problems(const Config& config, bool by_host = false);

}  // namespace heddle::config
