#include "remote/front_news.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace heddle::remote {

namespace {

/// More tokens than any prompt or answer has, and longer than anything waits.
constexpr std::int64_t kTokensBound = std::int64_t{1} << 40U;
constexpr Duration kTimeBound = std::chrono::hours(24 * 3650);

Error makes_no_sense(std::string message) {
  return {.code = Code::kCorrupt, .message = std::move(message)};
}

/// Looks at one message for one front.
class NewsCheck {
 public:
  explicit NewsCheck(FrontId front) : front_(front) {}

  Result<void> operator()(const core::FrontState& state) const {
    if (state.front != front_) {
      return makes_no_sense("it tells of front " + std::to_string(state.front.value()) +
                            ", and has front " + std::to_string(front_.value()));
    }
    for (const core::Unfinished& one : state.requests) {
      if (Result<void> good = (*this)(one.request); !good) {
        return good;
      }
      if (one.age > kTimeBound) {
        return makes_no_sense(named(one.request.request) + " is older than ten years");
      }
    }
    return {};
  }
  Result<void> operator()(const core::RequestArrived& arrived) const {
    if (Result<void> own = check(arrived.request); !own) {
      return own;
    }
    if (arrived.prompt_tokens > kTokensBound || arrived.max_tokens > kTokensBound) {
      return makes_no_sense(named(arrived.request) + " has more than 2^40 tokens");
    }
    const Duration patience = arrived.patience.value_or(Duration{});
    if (patience > kTimeBound || patience < -kTimeBound) {
      return makes_no_sense(named(arrived.request) + " has a deadline beyond ten years");
    }
    return {};
  }
  Result<void> operator()(const core::PlaceLost& lost) const {
    for (const std::vector<RequestId>* const list : {&lost.requests, &lost.advanced}) {
      for (const RequestId request : *list) {
        if (Result<void> own = check(request); !own) {
          return own;
        }
      }
      if (!std::ranges::is_sorted(*list)) {
        return makes_no_sense("the requests of a PlaceLost do not ascend");
      }
    }
    return {};
  }
  /// Others are not let through by the decoder.
  Result<void> operator()(const core::WorkerSaid& said) const {
    if (const auto* returned = std::get_if<core::RequestReturned>(&said.report)) {
      return check(returned->request);
    }
    if (const auto* failed = std::get_if<core::RequestFailed>(&said.report)) {
      return check(failed->request);
    }
    return makes_no_sense("a worker's report that is not of a request");
  }
  Result<void> operator()(const core::AdminLoad& /*load*/) const { return {}; }
  Result<void> operator()(const core::AdminUnload& /*unload*/) const { return {}; }
  Result<void> operator()(const DrainHost& /*drain*/) const { return {}; }
  Result<void> operator()(const Apply& /*apply*/) const { return {}; }
  Result<void> operator()(const QuotasUsed& /*used*/) const { return {}; }
  template <class News>
  Result<void> operator()(const News& news) const {
    return check(news.request);
  }

 private:
  static std::string named(RequestId request) {
    return "request " + std::to_string(request.value());
  }
  [[nodiscard]] Result<void> check(RequestId request) const {
    if (front_of(request) == front_) {
      return {};
    }
    return makes_no_sense(named(request) + " is of front " +
                          std::to_string(front_of(request).value()) +
                          ", and this gateway has front " + std::to_string(front_.value()));
  }

  FrontId front_;
};

}  // namespace

Result<void> check_news(const GatewayToManager& message, FrontId front) {
  return std::visit(NewsCheck(front), message);
}

}  // namespace heddle::remote
