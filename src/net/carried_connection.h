#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "base/descriptor.h"
#include "base/http_address.h"
#include "base/ids.h"
#include "base/result.h"

/// Connections to servers of another host that a link to it carries, as those have them that speak
/// to the servers.
namespace heddle::net {

/// Why such a connection has ended, or was never there.
struct CarriedEnd {
  Error why{};
  bool cut = false;  ///< The host could not be reached, which says nothing of the server.
};

/// One end of a pair of sockets; what goes through it comes out at the server. It ends as a
/// connection to the server would. But for a server that has hung up in peace, `end` then says why.
struct CarriedConnection {
  Descriptor socket{};
  HttpAddress address{};  ///< Where the server listens, as its host has it.
  std::shared_ptr<const std::optional<CarriedEnd>> end{};
  /// Says that nobody waits for an answer, until more is sent. May be called at any time.
  std::function<void()> idle{};
};

/// Opens a connection to the model's engine on the host, and tells of it, or of why there is none,
/// once: on the loop, never from within the call, perhaps when nobody wants it any more.
using Carry = std::function<void(
    HostId, ModelId, std::function<void(std::variant<CarriedConnection, CarriedEnd>)>)>;

}  // namespace heddle::net
