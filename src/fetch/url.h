#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Addresses of objects.
namespace heddle::fetch {

struct UrlParts {
  std::string scheme{};     ///< In small letters.
  std::string host{};       ///< In small letters; an address of IPv6 without brackets.
  std::uint16_t port = 0;   ///< That of the scheme where the URL says none.
  std::string path{};       ///< As it stands, from the first "/" on; "/" where there is none.
  bool has_user = false;    ///< There is a user, perhaps with a password.
  std::string authority{};  ///< Host and port, as a header `Host` has them.
};

/// Takes an absolute URL of http or https apart; nothing where it is none.
[[nodiscard]] std::optional<UrlParts> split_url(std::string_view url);

/// What of a URL may stand in a message: neither user and password nor query, as those of a content
/// network are credentials. At most 300 bytes.
[[nodiscard]] std::string shown(std::string_view url);

/// Percent-encodes what a path of a URL does not hold as it is; "/" stays where `slashes` says so.
/// As AWS's signatures want it (RFC 3986: all but letters, digits and "-._~").
[[nodiscard]] std::string percent_encode(std::string_view text, bool slashes);

/// Whether a name leads to something below the folder that it is used in: parts without "..", "."
/// and zero bytes, none empty, with "/" between.
[[nodiscard]] bool stays_below(std::string_view name);

/// Whom an address reaches that strangers should not choose.
enum class Reach : std::uint8_t {
  kNetwork,
  kLoopback,   ///< This machine.
  kLinkLocal,  ///< Its link; there clouds tell a machine its credentials.
};
/// By a numeric address; anything else, and "localhost" aside, is kNetwork.
[[nodiscard]] Reach reach_of(std::string_view host);

}  // namespace heddle::fetch
