#include "config/web_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <arpa/inet.h>

namespace heddle::config {

namespace {

constexpr std::size_t kNameMax = 253;  ///< Of a name of the DNS.
constexpr std::string_view kNull = "null";

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return made;
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Splits ":80" off; nothing where what follows the colon is no port. An empty one is none.
std::optional<std::optional<std::uint16_t>> parse_port(std::string_view text) {
  if (text.empty() || text == ":") {
    return std::optional<std::uint16_t>();
  }
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data() + 1, end, port);
  if (text.front() != ':' || failure != std::errc() || at != end) {
    return std::nullopt;
  }
  return std::optional(port);
}

/// An address of IPv6, without brackets.
std::optional<WebHost> parse_v6(const std::string& text) {
  in6_addr address{};
  std::array<char, INET6_ADDRSTRLEN> usual{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1 ||
      inet_ntop(AF_INET6, &address, usual.data(), usual.size()) == nullptr) {
    return std::nullopt;
  }
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&address) != 0 && address.s6_addr[12] == 127;
  return WebHost{.name = usual.data(),
                 .numeric = true,
                 .local = mapped || IN6_IS_ADDR_LOOPBACK(&address) != 0};
}

std::optional<WebHost> parse_name(std::string_view text) {
  if (text.ends_with('.')) {
    text.remove_suffix(1);
  }
  const bool sane = !text.empty() && text.size() <= kNameMax && !text.ends_with('.') &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
                    });
  if (!sane) {
    return std::nullopt;
  }
  WebHost host{.name = lower(text)};
  in_addr address{};
  if (inet_pton(AF_INET, host.name.c_str(), &address) == 1) {
    host.numeric = true;
    host.local = host.name.starts_with("127.");
  } else {
    host.local = host.name == "localhost" || host.name.ends_with(".localhost");
  }
  return host;
}

/// The port that a scheme has where none is written; 0 for none.
std::uint16_t usual_port(std::string_view scheme) {
  if (scheme == "http") {
    return 80;
  }
  return scheme == "https" ? 443 : 0;
}

}  // namespace

std::optional<WebHost> parse_web_host(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const std::size_t end = bracketed ? text.find(']') : std::min(text.find(':'), text.size());
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  std::optional<WebHost> host =
      bracketed ? parse_v6(std::string(text.substr(1, end - 1))) : parse_name(text.substr(0, end));
  const auto port = parse_port(text.substr(bracketed ? end + 1 : end));
  if (!host || !port) {
    return std::nullopt;
  }
  host->port = *port;
  return host;
}

std::optional<WebHost> parse_listen_host(std::string_view text) {
  const bool v6 = text.find(':') != std::string_view::npos;
  return v6 ? parse_v6(std::string(text)) : parse_name(text);
}

std::optional<std::string> parse_origin(std::string_view text) {
  if (text == kNull) {
    return std::string(kNull);
  }
  const std::size_t mark = text.find("://");
  if (mark == 0 || mark == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string scheme = lower(text.substr(0, mark));
  const bool sane = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return is_letter_or_digit(c) || c == '+' || c == '-' || c == '.';
  });
  const std::optional<WebHost> host = parse_web_host(text.substr(mark + 3));
  if (!sane || !host) {
    return std::nullopt;
  }
  const bool v6 = host->name.find(':') != std::string::npos;
  std::string origin = scheme + "://" + (v6 ? "[" + host->name + "]" : host->name);
  if (host->port && *host->port != usual_port(scheme)) {
    origin += ":" + std::to_string(*host->port);
  }
  return origin;
}

bool is_same_origin(std::string_view origin, const WebHost& host) {
  const std::size_t mark = origin.find("://");
  if (mark == std::string_view::npos) {
    return false;
  }
  const std::uint16_t usual = usual_port(origin.substr(0, mark));
  const std::optional<WebHost> page = parse_web_host(origin.substr(mark + 3));
  return usual != 0 && page && page->name == host.name &&
         page->port.value_or(usual) == host.port.value_or(usual);
}

}  // namespace heddle::config
