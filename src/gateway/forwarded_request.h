#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gateway/context.h"
#include "gateway/external_inbox.h"
#include "gateway/forwarding.h"
#include "gateway/usage_sniffer.h"

namespace heddle::gateway {

/// How long a request waits at most for its engine: `limits.load_timeout`, or where that was not
/// given, as long as the engine may take to start if that is more.
[[nodiscard]] Duration load_limit(const config::Limits& limits, const config::EngineConfig& engine);

/// What the rest of the system knows of a request that is forwarded: the system behind, the trace,
/// the metrics. Whatever way the coroutine that holds it ends, so does the request. Loop thread.
class ForwardedRequest {
 public:
  /// Asks the system behind to have `job` forwarded.
  ForwardedRequest(std::shared_ptr<Context> context,
                   const ForwardJob& job,
                   const std::string& request_id);
  ~ForwardedRequest();
  ForwardedRequest(const ForwardedRequest&) = delete;
  ForwardedRequest& operator=(const ForwardedRequest&) = delete;

  [[nodiscard]] const std::shared_ptr<ExternalInbox>& inbox() const { return inbox_; }

  /// The engine is asked now: the system behind has to be told when that ends.
  void forwarded() { forwarded_ = was_ready_ = true; }
  /// Has it forwarded again when the engine is known to run. `cut`: its host was not reached.
  void retry(bool cut);

  /// Time since the request arrived.
  [[nodiscard]] Duration age() const { return context_->now() - request_->times.arrived; }
  /// Fails the inbox when a limit of time has passed, else says what is left until the next of
  /// them. Never negative.
  Duration check_time();

  /// The engine has sent something.
  void heard() { request_->heard = context_->now(); }
  /// Takes note of some of the answer's body, which may be empty; `readable` where it is text.
  void pass(std::string_view body, bool readable);
  /// How it ended: the HTTP status and what went wrong.
  void end(int status, std::string error = {});

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<CatalogModel> model_;
  Asker asker_;
  ModelQueue::Places places_;
  std::string request_id_;
  std::shared_ptr<core::ExternalRequest> request_;
  std::shared_ptr<ExternalInbox> inbox_;
  Duration load_limit_;
  std::shared_ptr<RequestSpan> span_;
  std::shared_ptr<RequestTrace> trace_{};
  UsageSniffer usage_;
  std::int64_t passed_ = 0;  ///< Parts of the answer, as they came.
  bool forwarded_ = false;
  bool was_ready_ = false;  ///< The engine was brought up in time.
  int status_ = 499;
  std::string error_ = "the client hung up";
};

}  // namespace heddle::gateway
