#include "fetch/url.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace heddle::fetch {
namespace {

constexpr std::size_t kShownBytes = 300;
/// Where one cloud has its metadata by IPv6, outside of what is link-local.
constexpr std::string_view kMetadataV6 = "fd00:ec2::254";

std::string in_small(std::string_view text) {
  std::string small(text);
  std::ranges::transform(
      small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

Reach reach_v4(std::uint32_t address) {
  const std::uint32_t first = address >> 24U;
  if (first == 127 || first == 0) {
    return Reach::kLoopback;
  }
  return address >> 16U == 0xA9FEU ? Reach::kLinkLocal : Reach::kNetwork;
}

std::uint32_t word_at(const in6_addr& address, std::size_t offset) {
  std::uint32_t word = 0;
  std::memcpy(&word, &address.s6_addr[offset], sizeof word);
  return ntohl(word);
}

Reach reach_v6(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return reach_v4(word_at(address, 12));
  }
  if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address)) {
    return Reach::kLoopback;
  }
  in6_addr metadata{};
  (void)::inet_pton(AF_INET6, std::string(kMetadataV6).c_str(), &metadata);
  const bool is_metadata = std::memcmp(&metadata, &address, sizeof metadata) == 0;
  return IN6_IS_ADDR_LINKLOCAL(&address) || is_metadata ? Reach::kLinkLocal : Reach::kNetwork;
}

}  // namespace

std::optional<UrlParts> split_url(std::string_view url) {
  UrlParts parts;
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  parts.scheme = in_small(url.substr(0, colon));
  if (parts.scheme != "http" && parts.scheme != "https") {
    return std::nullopt;
  }
  std::string_view rest = url.substr(colon + 3);
  const std::size_t end = rest.find_first_of("/?#");
  std::string_view authority = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  parts.path = rest.substr(0, rest.find_first_of("?#"));
  parts.path = parts.path.empty() ? "/" : parts.path;
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
    parts.has_user = true;
    authority.remove_prefix(at + 1);
  }
  parts.authority = in_small(authority);
  const bool v6 = authority.starts_with('[');
  const std::size_t host_end = v6 ? authority.find(']') : authority.find(':');
  if (v6 && host_end == std::string_view::npos) {
    return std::nullopt;
  }
  parts.host = in_small(authority.substr(v6 ? 1 : 0, v6 ? host_end - 1 : host_end));
  parts.port = parts.scheme == "https" ? 443 : 80;
  std::string_view port =
      host_end == std::string_view::npos ? "" : authority.substr(host_end + (v6 ? 1 : 0));
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [last, failure] =
        std::from_chars(port.data(), port.data() + port.size(), parts.port);
    if (failure != std::errc() || last != port.data() + port.size()) {
      return std::nullopt;
    }
  }
  return parts.host.empty() ? std::nullopt : std::optional(std::move(parts));
}

std::string shown(std::string_view url) {
  std::string text(url.substr(0, url.find_first_of("?#")));
  const std::size_t begin = text.find("://");
  if (begin != std::string::npos) {
    const std::size_t end = text.find('/', begin + 3);
    const std::size_t at = text.rfind('@', end);
    if (at != std::string::npos && at > begin) {
      text.erase(begin + 3, at - begin - 2);
    }
  }
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

std::string percent_encode(std::string_view text, bool slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || c == '-' || c == '.' ||
                       c == '_' || c == '~' || (slashes && c == '/');
    if (plain) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4U];
      encoded += kDigits[byte & 15U];
    }
  }
  return encoded;
}

bool stays_below(std::string_view name) {
  if (name.empty() || name.size() > 1024 || name.find('\0') != std::string_view::npos) {
    return false;
  }
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    name.remove_prefix(slash + 1);
  }
}

Reach reach_of(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (::inet_aton(text.c_str(), &v4) == 1) {  // Takes "127.1" and the like, as resolvers do.
    return reach_v4(ntohl(v4.s_addr));
  }
  if (::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &v6) == 1) {
    return reach_v6(v6);
  }
  const bool local = text == "localhost" || text.ends_with(".localhost") || text == "localhost.";
  return local ? Reach::kLoopback : Reach::kNetwork;
}

}  // namespace heddle::fetch
