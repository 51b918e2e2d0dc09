#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What was answered.
struct KeptAnswer {
  int status = 0;
  std::string body{};
};

/// A request that no connection brought, and its answer, which is kept. Loop thread.
class KeptExchange final : public HttpExchange {
 public:
  /// An answer with more bytes is given up.
  static constexpr std::size_t kBodyMax = std::size_t{16} << 20U;

  explicit KeptExchange(HttpRequest request) : request_(std::move(request)) {}

  /// Nobody wants the answer any more: as if a client hung up.
  void call_back();
  /// Takes the answer; nothing where there is no whole one.
  std::optional<KeptAnswer> take();

  [[nodiscard]] const HttpRequest& request() const override { return request_; }
  Task<Result<void>> respond(HttpResponse response) override;
  Task<Result<void>> begin(StreamHead head, std::string part) override;
  Task<Result<void>> send_part(std::string part) override;
  Task<Result<void>> end(std::string part) override;
  void drop() override { call_back(); }
  [[nodiscard]] bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notify) override { notify_ = std::move(notify); }

 private:
  Result<void> add(const std::string& part);

  HttpRequest request_;
  KeptAnswer answer_{};
  bool whole_ = false;
  bool gone_ = false;
  std::function<void()> notify_{};
};

}  // namespace heddle::gateway
