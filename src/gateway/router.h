#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"

namespace heddle::gateway {

/// A method and a path. A path that ends in "{id}" takes anything that is not empty there, slashes
/// included, since names of models have them.
struct Route {
  std::string_view method;
  std::string_view path;
};

/// A route that fits, by its index, with what stood in the place of "{id}", decoded.
struct Match {
  std::size_t route = 0;
  std::string id{};
};

/// 404 where no route has the path, naming those that are near; 405 where none has the method, with
/// those that would be right.
struct NoMatch {
  api::ApiError error{};
  std::string allow{};  ///< For the Allow header of a 405.
};

/// The index of the first route that fits; nothing where none does. Pure, and so are those below.
[[nodiscard]] std::optional<std::size_t> find_route(const std::vector<Route>& routes,
                                                    std::string_view method,
                                                    std::string_view path);

/// The path of a route that `path` was probably meant to be, where none fits as it is: without
/// slashes at its end, or with "/v1" before it; empty where there is none. Slashes at the end stay
/// what they are where more than /v1 is at stake: there the path unloads all models instead of one.
[[nodiscard]] std::string meant_path(const std::vector<Route>& routes,
                                     std::string_view method,
                                     std::string_view path);

/// The same with what stood in the place of "{id}", or with what to say where none fits.
[[nodiscard]] std::variant<Match, NoMatch> match_route(const std::vector<Route>& routes,
                                                       std::string_view method,
                                                       std::string_view path);

/// The methods that `path` has, such as "GET, OPTIONS"; empty where it has none.
[[nodiscard]] std::string allowed_methods(const std::vector<Route>& routes, std::string_view path);

}  // namespace heddle::gateway
