#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "api/response_request.h"
#include "api/response_writer.h"
#include "base/log.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::string_view kHowToKeep =
    "; responses are kept for a day where they are asked for with \"store\": true, by the server "
    "that made them and while it has room";

/// A response that this client has not, or no longer.
api::ApiError unknown_response(std::string param, const std::string& id, std::string code) {
  api::ApiError error = api::invalid_request(
      std::move(param), "response \"" + id + "\" is not kept" + std::string(kHowToKeep));
  error.status = 404;
  error.code = std::move(code);
  return error;
}

/// The conversation that a request goes on with; an empty one where it begins one. What to tell the
/// client where its earlier response is unknown.
api::Parsed<api::Turns> conversation_of(Context& context,
                                        const HttpRequest& http,
                                        const api::ResponseRequest& request) {
  api::Turns turns;
  if (request.previous) {
    const auto kept =
        context.responses.find(http.principal.tenant, *request.previous, context.now());
    if (kept == nullptr) {
      return unknown_response(
          "previous_response_id", *request.previous, "previous_response_not_found");
    }
    turns = kept->conversation;
  }
  turns.append(request.input);
  return turns;
}

/// Keeps a response once it is complete.
auto keeper(std::shared_ptr<Context> context,
            std::string tenant,
            std::string id,
            api::Turns turns) {
  return [context = std::move(context),
          tenant = std::move(tenant),
          id = std::move(id),
          turns = std::move(turns)](const std::string& body, api::Turns answer) {
    KeptResponse kept{.body = body, .conversation = turns};
    kept.conversation.append(std::move(answer));
    const std::size_t bytes = kept.bytes();
    if (!context->responses.keep(tenant, id, std::move(kept), context->now())) {
      log::warning("a response is too large to be kept", {{"id", id}, {"bytes", bytes}});
    }
  };
}

Task<void> respond(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_response_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ResponseRequest request = std::get<0>(std::move(parsed));
  auto conversation = conversation_of(*context, http.request(), request);
  if (auto* wrong = std::get_if<api::ApiError>(&conversation)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::Turns turns = std::get<0>(std::move(conversation));
  if (request.previous) {
    request.chat.messages = api::chat_messages(request.instructions, turns);
  }
  auto prepared = co_await prepare_chat(context, http, std::move(request.chat), "resp_");
  if (auto* wrong = std::get_if<api::ApiError>(&prepared)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  GenerationJob job = std::get<0>(std::move(prepared));
  if (job.params.stream) {
    job.give_calls = text::GiveCalls::kAsTheyCome;  // Clients put the pieces together.
  }
  api::ResponseForm form{.settings = std::move(request.settings),
                         .custom_tools = std::move(request.custom_tools)};
  if (request.store) {
    form.complete = keeper(context, http.request().principal.tenant, job.head.id, std::move(turns));
  }
  std::unique_ptr<api::AnswerWriter> writer =
      api::response_writer(job.head, std::move(form), job.choices.front().front(), [] {
        return wall_clock_ms() / 1000;
      });
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

Task<void> show(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  const auto kept = context->responses.find(http.request().principal.tenant, id, context->now());
  if (kept == nullptr) {
    co_await respond_error(http, unknown_response("response_id", id, "response_not_found"));
    co_return;
  }
  co_await respond_json(http, kept->body);
}

Task<void> forget(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  if (!context->responses.erase(http.request().principal.tenant, id, context->now())) {
    co_await respond_error(http, unknown_response("response_id", id, "response_not_found"));
    co_return;
  }
  spec::JsonWriter json;
  json.begin_object().key("id").string(id).key("object").string("response");
  json.key("deleted").boolean(true).end_object();
  co_await respond_json(http, std::move(json).take());
}

/// What OpenAI's API does with responses beside making them: count, compact, cancel.
Task<void> not_offered(std::shared_ptr<Context>, HttpExchange& http, std::string what) {
  api::ApiError error =
      api::invalid_request("",
                           "POST /v1/responses/" + what +
                               " does not exist; there are POST /v1/responses, and GET and DELETE "
                               "of /v1/responses/{id}");
  error.status = 404;
  error.code = "unknown_path";
  co_await respond_error(http, std::move(error));
}

}  // namespace

std::vector<Endpoint> response_endpoints() {
  return {{{"POST", "/v1/responses"}, Access::kInference, ours_or_theirs<respond>},
          {{"GET", "/v1/responses/{id}"}, Access::kInference, show},
          {{"DELETE", "/v1/responses/{id}"}, Access::kInference, forget},
          {{"POST", "/v1/responses/{id}"}, Access::kInference, not_offered}};
}

}  // namespace heddle::gateway
