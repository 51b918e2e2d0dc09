#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/system/error_code.hpp>

namespace heddle::gateway {

/// Sends as much of `left` as the network takes without waiting, and takes that off its front. What
/// goes through the gateway mostly fits, and then needs no operation of the loop and none of its
/// turns. The socket does not block (`non_blocking(true)`).
template <class Buffers>
boost::system::error_code send_at_once(boost::asio::ip::tcp::socket& socket,
                                       boost::beast::buffers_suffix<Buffers>& left) {
  boost::system::error_code failure;
  left.consume(socket.write_some(left, failure));
  return failure == boost::asio::error::would_block ? boost::system::error_code() : failure;
}

}  // namespace heddle::gateway
