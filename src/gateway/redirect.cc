#include "gateway/redirect.h"

#include <algorithm>
#include <vector>

#include "gateway/upstream.h"

namespace heddle::gateway {

namespace {

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~/").find(c) != std::string_view::npos;
}

/// The name of a model as part of a path, its slashes kept.
std::string percent_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
  }
  return out;
}

/// What a browser may take for a slash or drop is no part of an address (RFC 3986, 2).
bool is_plain(std::string_view location) {
  return std::all_of(
      location.begin(), location.end(), [](char c) { return c > ' ' && c != '\x7f' && c != '\\'; });
}

/// Whether `segment` is "." or "..", percent-encoded or not.
std::size_t dots(std::string_view segment) {
  std::size_t count = 0;
  while (!segment.empty()) {
    const bool encoded = segment.starts_with("%2e") || segment.starts_with("%2E");
    if (!encoded && segment[0] != '.') {
      return 0;
    }
    segment.remove_prefix(encoded ? 3 : 1);
    ++count;
  }
  return count <= 2 ? count : 0;
}

/// A path that begins with a slash, without "." and "..", of which no more are taken than there is
/// to leave (RFC 3986, 5.2.4).
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  bool open = false;  // Whether it ends in a slash.
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    const std::size_t up = dots(segment);
    open = up > 0 || segment.empty();
    if (up == 2 && !kept.empty()) {
      kept.pop_back();
    } else if (up == 0 && (!segment.empty() || !path.empty())) {
      kept.push_back(segment);
    }
  }
  std::string out;
  for (const std::string_view segment : kept) {
    out.append("/").append(segment);
  }
  return out.empty() || open ? out + "/" : out;
}

/// Takes scheme, host and port off `location`; false if they are not the engine's.
bool take_authority(const HttpAddress& engine, std::string_view& location) {
  const std::string_view scheme = location.substr(0, location.find_first_of(":/?#"));
  if (scheme.size() < location.size() && location[scheme.size()] == ':') {
    if (!is_same_field(scheme, "http")) {
      return false;
    }
    location.remove_prefix(scheme.size() + 1);
    if (!location.starts_with("//")) {
      return false;  // "http:x" means nothing that all agree on.
    }
  }
  if (!location.starts_with("//")) {
    return true;
  }
  location.remove_prefix(2);
  const std::string_view authority = location.substr(0, location.find_first_of("/?#"));
  location.remove_prefix(authority.size());
  const std::string whole = engine.authority();
  const std::string_view host = std::string_view(whole).substr(0, whole.rfind(':'));
  return is_same_field(authority, whole) || (engine.port == 80 && is_same_field(authority, host));
}

}  // namespace

std::optional<std::string> redirect_below(const HttpAddress& engine,
                                          std::string_view model,
                                          std::string_view target,
                                          std::string_view location) {
  const std::string_view given = location;
  if (!is_plain(location) || !take_authority(engine, location)) {
    return std::nullopt;
  }
  const bool absolute = location.size() < given.size();
  const std::string_view path = location.substr(0, location.find_first_of("?#"));
  const std::string_view rest = location.substr(path.size());
  std::string resolved;
  if (path.starts_with('/') || absolute) {
    resolved = without_dots(path.empty() ? "/" : path);
    const std::string& base = engine.base_path;
    if (!resolved.starts_with(base) ||
        (resolved.size() > base.size() && resolved[base.size()] != '/')) {
      return std::nullopt;
    }
    resolved.erase(0, base.size());
  } else {
    const std::string_view asked = target.substr(0, target.find('?'));
    const std::string_view folder = asked.substr(0, asked.rfind('/') + 1);
    resolved = without_dots(path.empty() ? std::string(asked) : std::string(folder).append(path));
  }
  std::string query = path.empty() && !absolute && !rest.starts_with('?')
                          ? std::string(target.substr(std::min(target.find('?'), target.size())))
                          : std::string();
  return "/upstream/" + percent_encode(model) + resolved + query + std::string(rest);
}

}  // namespace heddle::gateway
