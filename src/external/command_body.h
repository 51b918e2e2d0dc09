#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "external/engine_body.h"

namespace heddle::external {

/// A command, all that it starts, and a file that tells a second life of ours of them.
[[nodiscard]] std::unique_ptr<EngineBody> make_command_body(
    const boost::asio::any_io_executor& executor, BodySetup setup);

}  // namespace heddle::external
