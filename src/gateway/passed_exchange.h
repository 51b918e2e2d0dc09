#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// Passes an exchange on, for those that change a part of it. `inner` outlives it. Loop thread.
class PassedExchange : public HttpExchange {
 public:
  explicit PassedExchange(HttpExchange& inner) : inner_(inner) {}

  [[nodiscard]] const HttpRequest& request() const override { return inner_.request(); }
  [[nodiscard]] std::shared_ptr<RequestSpan> span() const override { return inner_.span(); }
  Task<Result<void>> respond(HttpResponse response) override {
    return inner_.respond(std::move(response));
  }
  Task<Result<void>> begin(StreamHead head, std::string part) override {
    return inner_.begin(std::move(head), std::move(part));
  }
  Task<Result<void>> send_part(std::string part) override {
    return inner_.send_part(std::move(part));
  }
  Task<Result<void>> end(std::string part) override { return inner_.end(std::move(part)); }
  void drop() override { inner_.drop(); }
  [[nodiscard]] bool gone() const override { return inner_.gone(); }
  void on_gone(std::function<void()> notify) override { inner_.on_gone(std::move(notify)); }

 private:
  HttpExchange& inner_;
};

}  // namespace heddle::gateway
