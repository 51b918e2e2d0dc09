#pragma once

#include <string>
#include <string_view>

#include "api/error.h"

namespace heddle::api {

/// What a client asks for that makes a batch.
struct BatchRequest {
  std::string input{};     ///< The id of a file.
  std::string endpoint{};  ///< One of those that batches may ask.
  std::string metadata{};  ///< A JSON object of up to 16 strings; empty: none.
};

/// The body of POST /v1/batches.
[[nodiscard]] Parsed<BatchRequest> parse_batch_request(std::string_view body);

}  // namespace heddle::api
