#include <utility>

#include "api/response_request.h"
#include "api/response_writer.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

Task<void> respond(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_response_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ResponseRequest request = std::get<0>(std::move(parsed));
  auto prepared = co_await prepare_chat(context, http, std::move(request.chat), "resp_");
  if (auto* wrong = std::get_if<api::ApiError>(&prepared)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  GenerationJob job = std::get<0>(std::move(prepared));
  std::unique_ptr<api::AnswerWriter> writer =
      api::response_writer(job.head, std::move(request.settings), job.choices.front().front(), [] {
        return wall_clock_ms() / 1000;
      });
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

/// Of a response that is asked for, or about, later.
Task<void> not_kept(std::shared_ptr<Context>, HttpExchange& http, std::string id) {
  api::ApiError error =
      api::invalid_request("response_id", "response \"" + id + "\": responses are not kept");
  error.status = 404;
  error.code = "response_not_found";
  co_await respond_error(http, std::move(error));
}

/// What OpenAI's API does with responses beside making them: count, compact, cancel.
Task<void> not_offered(std::shared_ptr<Context>, HttpExchange& http, std::string what) {
  api::ApiError error = api::invalid_request(
      "",
      "POST /v1/responses/" + what +
          " does not exist; responses are not kept, so that there is POST /v1/responses alone");
  error.status = 404;
  error.code = "unknown_path";
  co_await respond_error(http, std::move(error));
}

}  // namespace

std::vector<Endpoint> response_endpoints() {
  return {{{"POST", "/v1/responses"}, Access::kInference, ours_or_theirs<respond>},
          {{"GET", "/v1/responses/{id}"}, Access::kInference, not_kept},
          {{"DELETE", "/v1/responses/{id}"}, Access::kInference, not_kept},
          {{"POST", "/v1/responses/{id}"}, Access::kInference, not_offered}};
}

}  // namespace heddle::gateway
