#include "gateway/renaming.h"

#include <utility>

#include "api/error.h"
#include "gateway/forward_body.h"
#include "gateway/passed_exchange.h"
#include "gateway/proxy_handlers.h"
#include "gateway/standing.h"

namespace heddle::gateway {

namespace {

/// An exchange whose request names another model.
class RenamedExchange final : public PassedExchange {
 public:
  RenamedExchange(HttpExchange& inner, HttpRequest request)
      : PassedExchange(inner), request_(std::move(request)) {}

  [[nodiscard]] const HttpRequest& request() const override { return request_; }

 private:
  HttpRequest request_;
};

}  // namespace

Task<void> answer_under_names(std::shared_ptr<Context> context,
                              HttpExchange& http,
                              Handler handler,
                              std::string id) {
  auto read = co_await facts_of(*context, http);
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const Result<BodyFacts> facts = std::get<0>(std::move(read));
  if (context->serving == nullptr) {  // The gateway went while a long body was read.
    co_await respond_error(http, api::unavailable("the server is shutting down"));
    co_return;
  }
  std::optional<ModelNames::Meant> meant;
  if (facts && !facts->model.empty()) {
    const ModelNames::Look look = [&context](const std::string& model) {
      return standing_of(*context, model);
    };
    meant = context->names.resolve(facts->model, look);
  }
  if (!meant) {
    co_await handler(std::move(context), http, std::move(id));
    co_return;
  }
  if (meant->model.empty()) {
    api::ApiError none = api::model_not_found(facts->model, context->catalog.listed_names());
    none.message = "the active profile, \"" + context->names.active() + "\", has no model \"" +
                   facts->model + "\"";
    co_await respond_error(http, std::move(none));
    co_return;
  }
  HttpRequest request = http.request();
  std::function<void()> work = [&request, &meant, &facts] {
    request.body = filtered_body(request, {}, meant->model, facts->model);
  };
  std::optional<api::ApiError> wrong = co_await work_on_body(*context, http, std::move(work));
  if (!wrong && context->serving == nullptr) {
    wrong = api::unavailable("the server is shutting down");
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  RenamedExchange renamed(http, std::move(request));
  co_await handler(std::move(context), renamed, std::move(id));
}

}  // namespace heddle::gateway
