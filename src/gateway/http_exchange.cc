#include "gateway/http_exchange.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/background.h"
#include "gateway/task.h"

namespace heddle::gateway {

Task<Result<void>> HttpExchange::begin_stream(std::string content_type, HttpFields further) {
  StreamHead head{.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  head.headers.emplace_back("Content-Type", std::move(content_type));
  head.headers.insert(head.headers.end(), further.begin(), further.end());
  return begin(std::move(head), {});
}

Asker asker_of(const HttpRequest& request) {
  const std::string& peer = request.peer;
  const bool local = peer.starts_with("127.") || peer == "::1" || peer.starts_with("::ffff:127.");
  const bool alike = request.principal.tenant.empty() && local;
  const bool background = core::is_background(request.principal.least_priority);
  return {.tenant = request.principal.tenant,
          .share = background ? kBackgroundShare
                   : alike    ? std::string()
                              : request.client(),
          .name = request.principal.name.empty() ? request.client() : request.principal.name,
          .account = request.principal.account,
          .salt = request.principal.key_digest};
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decode(pair.substr(0, equals)) == name) {
      return percent_decode(pair.substr(std::min(equals + 1, pair.size())));
    }
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  return std::nullopt;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const char* digits = text.data() + i + 1;
      const auto [end, failure] = std::from_chars(digits, digits + 2, byte, 16);
      if (failure == std::errc() && end == digits + 2) {
        decoded += static_cast<char>(byte);
        i += 2;
        continue;
      }
    }
    decoded += text[i];
  }
  return decoded;
}

}  // namespace heddle::gateway
