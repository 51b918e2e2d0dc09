#include "gateway/router.h"

#include "base/nearest.h"
#include "gateway/http_exchange.h"

namespace heddle::gateway {

namespace {

constexpr std::string_view kId = "{id}";
constexpr std::string_view kV1 = "/v1";
constexpr std::size_t kPathShownMax = 200;
constexpr std::size_t kNearMax = 3;

std::string_view prefix_of(std::string_view pattern) {
  return pattern.substr(0, pattern.size() - kId.size());
}

bool fits(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with(kId)) {
    return pattern == path;
  }
  const std::string_view prefix = prefix_of(pattern);
  return path.starts_with(prefix) && path.size() > prefix.size();
}

/// What stands in the place of the id of a path that fits; empty for a path without one.
std::string id_in(std::string_view pattern, std::string_view path) {
  return pattern.ends_with(kId) ? percent_decode(path.substr(prefix_of(pattern).size())) : "";
}

NoMatch not_found(const std::vector<Route>& routes,
                  std::string_view method,
                  std::string_view path) {
  const std::string_view shown = path.substr(0, kPathShownMax);
  std::string message = std::string(method) + " " + std::string(shown) + " does not exist; ";
  std::vector<std::string_view> known;
  for (const Route& route : routes) {
    if (known.empty() || route.path != known.back()) {
      known.push_back(route.path);
    }
  }
  for (std::size_t near = 0; near < kNearMax; ++near) {
    const std::string meant = nearest(shown, known);
    if (meant.empty()) {
      break;
    }
    message += (near == 0 ? "near it are " : ", ") + meant;
    std::erase(known, meant);
  }
  message += message.ends_with("; ") ? "GET / tells what there is" : "; GET / tells what there is";
  api::ApiError error = api::invalid_request("", message);
  error.status = 404;
  error.code = "unknown_path";
  return {.error = error};
}

}  // namespace

std::string allowed_methods(const std::vector<Route>& routes, std::string_view path) {
  std::string methods;
  for (const Route& route : routes) {
    if (fits(route.path, path)) {
      methods += std::string(route.method) + (route.method == "GET" ? ", HEAD, " : ", ");
    }
  }
  return methods.empty() ? methods : methods + "OPTIONS";
}

std::optional<std::size_t> find_route(const std::vector<Route>& routes,
                                      std::string_view method,
                                      std::string_view path) {
  for (std::size_t i = 0; i < routes.size(); ++i) {
    if (routes[i].method == method && fits(routes[i].path, path)) {
      return i;
    }
  }
  return std::nullopt;
}

std::string meant_path(const std::vector<Route>& routes,
                       std::string_view method,
                       std::string_view path) {
  if (!allowed_methods(routes, path).empty()) {
    return "";  // It exists, if with another method.
  }
  std::string_view bare = path;
  while (bare.size() > 1 && bare.ends_with('/')) {
    bare.remove_suffix(1);
  }
  const auto is_v1 = [&routes, method](std::string_view candidate) {
    const std::optional<std::size_t> route = find_route(routes, method, candidate);
    return route && routes[*route].path.starts_with("/v1/");
  };
  const std::string prefixed = std::string(kV1) + std::string(bare);
  if (is_v1(bare) || (method == "GET" && find_route(routes, method, bare))) {
    return std::string(bare);
  }
  return is_v1(prefixed) && bare.size() > 1 ? prefixed : "";
}

std::variant<Match, NoMatch> match_route(const std::vector<Route>& routes,
                                         std::string_view method,
                                         std::string_view path) {
  if (const std::optional<std::size_t> route = find_route(routes, method, path)) {
    return Match{.route = *route, .id = id_in(routes[*route].path, path)};
  }
  const std::string allow = allowed_methods(routes, path);
  if (allow.empty()) {
    return not_found(routes, method, path);
  }
  api::ApiError error =
      api::invalid_request("",
                           std::string(path.substr(0, kPathShownMax)) + " takes " + allow +
                               ", not " + std::string(method));
  error.status = 405;
  error.code = "method_not_allowed";
  return NoMatch{.error = error, .allow = allow};
}

}  // namespace heddle::gateway
