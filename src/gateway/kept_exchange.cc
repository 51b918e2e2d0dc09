#include "gateway/kept_exchange.h"

namespace heddle::gateway {

void KeptExchange::call_back() {
  gone_ = true;
  if (const std::function<void()> notify = std::exchange(notify_, nullptr)) {
    notify();
  }
}

std::optional<KeptAnswer> KeptExchange::take() {
  return whole_ && !gone_ ? std::optional(std::move(answer_)) : std::nullopt;
}

Result<void> KeptExchange::add(const std::string& part) {
  if (gone_) {
    return Error{.code = Code::kCancelled, .message = "the request was called back"};
  }
  if (answer_.body.size() + part.size() > kBodyMax) {
    answer_ = {.status = 502, .body = R"({"error":{"message":"the answer is too large"}})"};
    whole_ = true;
    return Error{.code = Code::kResourceExhausted, .message = "the answer is too large"};
  }
  answer_.body += part;
  return {};
}

Task<Result<void>> KeptExchange::respond(HttpResponse response) {
  answer_.status = response.status;
  Result<void> added = add(response.body);
  whole_ = whole_ || added.has_value();
  return added;
}

Task<Result<void>> KeptExchange::begin(StreamHead head, std::string part) {
  answer_.status = head.status;
  return add(part);
}

Task<Result<void>> KeptExchange::send_part(std::string part) {
  return add(part);
}

Task<Result<void>> KeptExchange::end(std::string part) {
  Result<void> added = add(part);
  whole_ = whole_ || added.has_value();
  return added;
}

}  // namespace heddle::gateway
