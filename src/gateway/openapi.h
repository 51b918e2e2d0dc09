#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/handlers.h"

namespace heddle::gateway {

/// What the document says of one operation, beside who may ask it.
struct Operation {
  Route route;
  std::string_view tag{};
  std::string_view summary{};
  std::string_view request{};  ///< A name of request_schemas(); empty: it takes no body, or any.
  std::string_view stream{};   ///< Content type of what it streams; empty: it does not.
};

/// The operations that are told of; one for each route.
[[nodiscard]] std::span<const Operation> operations();

/// What is told of a body.
struct RequestSchema {
  std::string_view name{};
  std::string_view schema{};   ///< JSON.
  std::string_view example{};  ///< JSON; a body that is answered where there is a model "MODEL".
};
[[nodiscard]] std::span<const RequestSchema> request_schemas();

/// The OpenAPI document (3.1) of these endpoints, but for the page for browsers.
[[nodiscard]] std::string openapi_json(const Routing& routing, std::string_view version);

}  // namespace heddle::gateway
