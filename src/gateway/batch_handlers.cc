#include "gateway/batch_handlers.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>

#include "api/batch_request.h"
#include "gateway/handlers.h"
#include "gateway/job_setup.h"
#include "gateway/text_work.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

using batches::BatchRecord;
using batches::Book;
using batches::State;

namespace {

constexpr std::int64_t kWindowSeconds = 24 * 3600;
constexpr std::size_t kListed = 20;
constexpr std::size_t kListedMost = 100;
constexpr std::string_view kCancel = "/cancel";

Task<void> create(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  auto parsed = co_await parse_body(*context, http, &api::parse_batch_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::BatchRequest request = std::get<0>(std::move(parsed));
  BatchRecord batch{.id = "batch_" + draw_id(context->rng),
                    .owner = http.request().principal.owner,
                    .endpoint = std::move(request.endpoint),
                    .input = std::move(request.input),
                    .output = "file-" + draw_id(context->rng),
                    .errors = "file-" + draw_id(context->rng),
                    .metadata = std::move(request.metadata)};
  const std::int64_t now_s = wall_clock_ms() / 1000;
  batch.enter(State::kValidating, now_s);
  batch.expires_s = now_s + kWindowSeconds;
  std::function<Result<batches::FileRecord>(Book&)> add =
      [&batch](Book& book) -> Result<batches::FileRecord> {
    Result<batches::FileRecord> file = book.file(batch.owner, batch.input);
    const bool readable = file && file->purpose == "batch";
    if (const Result<void> added = readable ? book.add_batch(batch) : Result<void>(); !added) {
      return added.error();
    }
    return file;
  };
  const Result<batches::FileRecord> file = co_await ask_book(*context, std::move(add));
  if (context->serving == nullptr) {
    co_return;
  }
  std::optional<api::ApiError> wrong;
  if (!file) {
    wrong = book_error(file.error(), file.error().code == Code::kNotFound ? "input_file_id" : "");
  } else if (file->purpose != "batch") {
    wrong = api::invalid_request("input_file_id",
                                 "input_file_id: the file's purpose is \"" + file->purpose +
                                     "\"; want one that was uploaded with \"batch\"");
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  context->batches->add(batch);
  co_await respond_json(http, batches::batch_json(batch));
}

/// How a batch of this owner stands: as it is now, where it is not over.
Task<Result<BatchRecord>> find_batch(Context& context, const std::string& owner, std::string id) {
  const BatchRecord* open = context.batches->find(id);
  if (open != nullptr && open->owner == owner) {
    co_return *open;
  }
  std::function<Result<BatchRecord>(Book&)> find = [&owner, &id](Book& book) {
    return book.batch(owner, id);
  };
  Result<BatchRecord> found = co_await ask_book(context, std::move(find));
  co_return found;
}

Task<void> show(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  const auto batch = co_await find_batch(*context, http.request().principal.owner, std::move(id));
  if (!batch) {
    co_await respond_error(http, book_error(batch.error()));
    co_return;
  }
  co_await respond_json(http, batches::batch_json(*batch));
}

Task<void> list(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  const auto page = page_wanted(http.request(), kListed, kListedMost);
  if (const auto* wrong = std::get_if<api::ApiError>(&page)) {
    co_await respond_error(http, *wrong);
    co_return;
  }
  const std::string owner = http.request().principal.owner;
  std::function<Result<std::vector<BatchRecord>>(Book&)> find = [&owner](Book& book) {
    return book.batches(owner);
  };
  const Result<std::vector<BatchRecord>> all = co_await ask_book(*context, std::move(find));
  if (!all || context->serving == nullptr) {
    const Error why = all ? Error{Code::kUnavailable, "the server is shutting down"} : all.error();
    co_await respond_error(http, book_error(why));
    co_return;
  }
  std::vector<std::pair<std::string, std::string>> objects;
  for (auto batch = all->rbegin(); batch != all->rend(); ++batch) {
    const BatchRecord* open = context->batches->find(batch->id);
    objects.emplace_back(batch->id, batches::batch_json(open == nullptr ? *batch : *open));
  }
  co_await respond_json(http, page_json(objects, std::get<PageWanted>(page)));
}

Task<void> cancel(std::shared_ptr<Context> context, HttpExchange& http, std::string path) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  if (!path.ends_with(kCancel)) {
    api::ApiError wrong = api::invalid_request(
        "", "POST /v1/batches/" + path + " does not exist; want POST /v1/batches/{id}/cancel");
    wrong.status = 404;
    wrong.code = "unknown_path";
    co_await respond_error(http, std::move(wrong));
    co_return;
  }
  const std::string id = path.substr(0, path.size() - kCancel.size());
  const std::string owner = http.request().principal.owner;
  Result<BatchRecord> batch = co_await find_batch(*context, owner, id);
  const bool open = context->serving != nullptr && context->batches->find(id) != nullptr;
  if (batch && open && !batches::is_over(batch->state)) {
    context->batches->cancel(id, wall_clock_ms() / 1000);
    batch = *context->batches->find(id);
    std::function<Result<std::monostate>(Book&)> keep =
        [&batch](Book& book) -> Result<std::monostate> {
      const Result<void> kept = book.keep(*batch);
      return kept ? Result<std::monostate>(std::monostate()) : kept.error();
    };
    const Result<std::monostate> kept = co_await ask_book(*context, std::move(keep));
    batch = kept ? batch : Result<BatchRecord>(kept.error());
  } else if (batch && batches::is_over(batch->state)) {
    batch = Error{Code::kInvalidArgument,
                  "batch \"" + id + "\" is " + std::string(batches::name(batch->state)) +
                      "; what is over cannot be cancelled"};
  }
  if (!batch) {
    co_await respond_error(http, book_error(batch.error()));
    co_return;
  }
  co_await respond_json(http, batches::batch_json(*batch));
}

}  // namespace

api::ApiError no_batches() {
  api::ApiError error = api::not_supported(
      "",
      "this server keeps no files, so it has no batches: a single server does, whose configuration "
      "says where (dataDir); gateways of a cluster do not");
  error.status = 501;
  return error;
}

api::ApiError book_error(const Error& error, std::string param) {
  api::ApiError told = api::from_error(error, std::move(param));
  if (error.code == Code::kResourceExhausted) {
    told.status = 413;  // Clients ask again after others.
    told.retry_after = 0;
    told.code = "storage_full";
    told.type = "invalid_request_error";
  } else if (error.code == Code::kFailedPrecondition) {
    told.status = 400;
  }
  return told;
}

api::Parsed<PageWanted> page_wanted(const HttpRequest& request,
                                    std::size_t usual,
                                    std::size_t most) {
  PageWanted page{.after = query_value(request.query, "after").value_or(""), .limit = usual};
  const std::optional<std::string> limit = query_value(request.query, "limit");
  if (!limit) {
    return page;
  }
  const char* const end = limit->data() + limit->size();
  const auto [stop, failure] = std::from_chars(limit->data(), end, page.limit);
  if (failure != std::errc() || stop != end || page.limit < 1 || page.limit > most) {
    return api::invalid_request(
        "limit", "limit: is \"" + *limit + "\"; want a number from 1 to " + std::to_string(most));
  }
  return page;
}

std::string page_json(const std::vector<std::pair<std::string, std::string>>& all,
                      const PageWanted& wanted) {
  auto first = all.begin();
  if (!wanted.after.empty()) {
    first = std::ranges::find_if(all, [&](const auto& one) { return one.first == wanted.after; });
    first = first == all.end() ? first : std::next(first);
  }
  const std::size_t count =
      std::min(wanted.limit, static_cast<std::size_t>(std::distance(first, all.end())));
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  spec::JsonWriter json;
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (auto one = first; one != last; ++one) {
    json.json(one->second);
  }
  json.end_array();
  if (count > 0) {
    json.key("first_id").string(first->first).key("last_id").string(std::prev(last)->first);
  } else {
    json.key("first_id").null().key("last_id").null();
  }
  json.key("has_more").boolean(last != all.end()).end_object();
  return std::move(json).take();
}

std::vector<Endpoint> batch_endpoints() {
  return {{{"POST", "/v1/batches"}, Access::kInference, create},
          {{"GET", "/v1/batches"}, Access::kInference, list},
          {{"GET", "/v1/batches/{id}"}, Access::kInference, show},
          {{"POST", "/v1/batches/{id}"}, Access::kInference, cancel, Body::kAny}};
}

}  // namespace heddle::gateway
