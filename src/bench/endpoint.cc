#include "bench/endpoint.h"

#include <utility>

namespace heddle::bench {

Result<HttpAddress> parse_endpoint(std::string_view text) {
  Result<HttpAddress> address =
      parse_http_address(text, {.host = "127.0.0.1", .port = 8080, .base_path = "/v1"});
  if (!address) {
    return Error{
        .code = address.error().code,
        .message = address.error().message + "; want an API's address: http://host:port/v1"};
  }
  return address;
}

}  // namespace heddle::bench
