#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::net {

/// With what the names of clusters, and in them, begin.
inline constexpr std::string_view kScheme = "heddle://";

/// What a process is in its cluster.
enum class Role : std::uint8_t { kManager, kGateway, kAgent };

/// "manager", "gateway" or "agent".
[[nodiscard]] std::string_view name(Role role);
/// The inverse. kInvalidArgument, with what there is, for any other text.
Result<Role> parse_role(std::string_view text);

/// Who a process is, as its certificate says. No two processes of a cluster have the same at once.
struct Identity {
  std::string cluster{};
  Role role = Role::kAgent;
  std::string name{};

  /// "heddle://CLUSTER/ROLE/NAME", as it stands in the certificate.
  [[nodiscard]] std::string uri() const;
  /// `agent "h1" of cluster "prod"`.
  [[nodiscard]] std::string text() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// Reads uri(). kInvalidArgument, with what is wrong, for anything else.
Result<Identity> parse_identity(std::string_view uri);

/// Whether `text` may be the name of a cluster or in one: 1 to 200 letters, digits, '.', '-' and
/// '_', a letter or digit first. Else kInvalidArgument; `what` says whose name it is.
Result<void> check_name(std::string_view what, std::string_view text);

}  // namespace heddle::net
