#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "external/engine_body.h"

namespace heddle::external {

/// A container called heddle-ID, run, paused and removed by podman, or by a program with podman's
/// (or docker's) words: run, pause, unpause, wait, logs, inspect, stop, kill, rm. One of that name
/// that an earlier life of ours left is removed first.
[[nodiscard]] std::unique_ptr<EngineBody> make_container_body(
    const boost::asio::any_io_executor& executor, BodySetup setup);

/// The processes of a container, found by the number of its first one and the namespace that this
/// lives in. Blocks as ProcessSet says.
[[nodiscard]] std::shared_ptr<ProcessSet> make_container_set(std::string runtime,
                                                             std::string container);

}  // namespace heddle::external
