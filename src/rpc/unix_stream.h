#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "rpc/descriptor.h"
#include "rpc/stream.h"

namespace heddle::rpc {

/// Over a connected Unix stream socket, which carries descriptors.
[[nodiscard]] std::unique_ptr<Stream> unix_stream(const boost::asio::any_io_executor& executor,
                                                  Descriptor socket);

}  // namespace heddle::rpc
