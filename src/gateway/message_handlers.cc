#include <memory>
#include <utility>

#include "api/anthropic/message_request.h"
#include "api/anthropic/message_writer.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace {

Task<void> answer_message(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_message_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ChatRequest request = std::get<0>(std::move(parsed));
  auto prepared = co_await prepare_chat(context, http, std::move(request), "msg_");
  if (auto* wrong = std::get_if<api::ApiError>(&prepared)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  GenerationJob job = std::get<0>(std::move(prepared));
  if (job.params.stream) {
    job.give_calls = text::GiveCalls::kAsTheyCome;  // Clients put the pieces together.
  }
  const auto tokens = static_cast<std::int64_t>(job.prompts.front().size());
  std::unique_ptr<api::AnswerWriter> writer = api::message_writer(job.head, tokens);
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

Task<void> count_message_tokens(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_message_count_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::ChatRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kTokens);
  const TextBounds bounds = opened.error ? TextBounds() : tokenize_bounds(*opened.text, "messages");
  if (!opened.error) {
    opened.error = check_bytes(request.messages.text_bytes, bounds);
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  auto read = co_await read_chat(*context, http, opened, request, bounds);
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const auto tokens = static_cast<std::int64_t>(std::get<0>(read).tokens.size());
  co_await respond_json(http, api::message_count_json(tokens));
}

}  // namespace

std::vector<Endpoint> message_endpoints() {
  return {{{"POST", "/v1/messages"}, Access::kInference, ours_or_theirs<answer_message>},
          {{"POST", "/v1/messages/count_tokens"},
           Access::kInference,
           ours_or_theirs<count_message_tokens>}};
}

}  // namespace heddle::gateway
