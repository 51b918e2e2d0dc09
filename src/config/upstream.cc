#include "config/upstream.h"

#include <string>

namespace heddle::config {

namespace {

Error invalid(const std::string& why) {
  return {.code = Code::kInvalidArgument,
          .message = why + "; want an address such as http://127.0.0.1:5800"};
}

}  // namespace

Result<HttpAddress> parse_upstream(std::string_view text) {
  const std::string quoted = "\"" + std::string(text) + "\"";
  if (text.starts_with("https://")) {
    return invalid(quoted +
                   " is https, which is not spoken to engines; put a program between that takes "
                   "http and goes on with TLS, such as nginx with proxy_pass");
  }
  if (!text.starts_with("http://")) {
    return invalid(quoted + " does not start with http://");
  }
  Result<HttpAddress> address = parse_http_address(text, {});
  return address ? std::move(address) : invalid(address.error().message);
}

bool is_local(const HttpAddress& url) {
  return url.host == "localhost" || url.host == "0.0.0.0" || url.host == "::1" ||
         url.host == "::" || url.host.starts_with("127.");
}

}  // namespace heddle::config
