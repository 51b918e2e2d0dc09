#include "gateway/router.h"

#include "gateway/http_exchange.h"

namespace heddle::gateway {

namespace {

constexpr std::string_view kId = "{id}";
constexpr std::size_t kPathShownMax = 200;

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
  std::string message = std::string(method) + " " + std::string(path.substr(0, kPathShownMax)) +
                        " does not exist; there are";
  std::string_view previous;
  for (const Route& route : routes) {
    if (route.path != previous) {
      message += previous.empty() ? " " : ", ";
      message += route.path;
      previous = route.path;
    }
  }
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
