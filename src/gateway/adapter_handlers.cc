// vLLM's calls that load LoRA adapters into a running server, and take them away.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/requests.h"
#include "gateway/answered.h"
#include "gateway/handlers.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace {

api::ApiError nobody_does() {
  api::ApiError error = api::invalid_request(
      "",
      "no adapters are loaded here while the server runs: of a cluster the managers have the "
      "configuration, so add the adapter to that, and have it taken over with heddle apply");
  error.status = 501;
  error.code = "not_supported";
  return error;
}

/// What is asked of whoever has adapters, and the answer where that is done.
struct Change {
  std::function<void(std::function<void(Result<void>)>)> begin{};
  std::string told{};
};

Task<void> carry_out(std::shared_ptr<Context> context, HttpExchange& http, Change change) {
  const Result<void> done = co_await answered(context->loop, std::move(change.begin));
  if (!done) {
    co_await respond_error(http, api::from_error(done.error()));
    co_return;
  }
  HttpResponse response{.body = std::move(change.told),
                        .content_type = "text/plain; charset=utf-8"};
  (void)co_await http.respond(std::move(response));
}

Task<void> load(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (!context->adapters.load) {
    co_await respond_error(http, nobody_does());
    co_return;
  }
  auto parsed = co_await parse_body(*context, http, &api::parse_load_adapter_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::LoadAdapterRequest request = std::get<0>(std::move(parsed));
  Change change;
  change.told = "Success: LoRA adapter '" + request.name + "' added successfully.";
  change.begin = [context, request](std::function<void(Result<void>)> done) {
    context->adapters.load(request, std::move(done));
  };
  co_await carry_out(std::move(context), http, std::move(change));
}

Task<void> unload(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (!context->adapters.unload) {
    co_await respond_error(http, nobody_does());
    co_return;
  }
  auto parsed = co_await parse_body(*context, http, &api::parse_unload_adapter_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  std::string name = std::get<0>(std::move(parsed));
  Change change;
  change.told = "Success: LoRA adapter '" + name + "' removed successfully.";
  change.begin = [context, name](std::function<void(Result<void>)> done) {
    context->adapters.unload(name, std::move(done));
  };
  co_await carry_out(std::move(context), http, std::move(change));
}

}  // namespace

std::vector<Endpoint> adapter_endpoints() {
  return {{{"POST", "/v1/load_lora_adapter"}, Access::kAdmin, load},
          {{"POST", "/v1/unload_lora_adapter"}, Access::kAdmin, unload}};
}

}  // namespace heddle::gateway
