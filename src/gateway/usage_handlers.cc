#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "gateway/handlers.h"
#include "gateway/task.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kDaysUsual = 30;
constexpr std::int64_t kDaysMost = 366;

std::string date_of(std::int64_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(day))};
  return fmt::format("{:04}-{:02}-{:02}",
                     static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

void write_usage_row(spec::JsonWriter& json, const spec::KeyUsage& row, bool with_day) {
  json.begin_object();
  if (with_day) {
    json.key("day").string(date_of(row.day));
  }
  json.key("key").string(row.key).key("model").string(row.model);
  json.key("requests").integer(row.requests);
  json.key("prompt_tokens").integer(row.prompt_tokens);
  json.key("cached_tokens").integer(row.cached_tokens);
  json.key("completion_tokens").integer(row.completion_tokens).end_object();
}

/// What keys have used: of an admin's request of all, else of its own.
Task<void> show_usage(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const HttpRequest& request = http.request();
  std::int64_t days = kDaysUsual;
  if (const std::optional<std::string> asked = query_value(request.query, "days")) {
    const auto [end, failure] = std::from_chars(asked->data(), asked->data() + asked->size(), days);
    if (failure != std::errc() || end != asked->data() + asked->size() || days < 1 ||
        days > kDaysMost) {
      co_await respond_error(
          http, api::invalid_request("days", "days: want a whole number from 1 to 366"));
      co_return;
    }
  }
  const bool by_day = query_value(request.query, "by") == "day";
  const std::int64_t from = context->usage_day() - days + 1;
  std::vector<spec::KeyUsage> rows = context->usage.since(from);
  if (request.principal.role != config::Role::kAdmin) {
    std::erase_if(rows,
                  [&](const spec::KeyUsage& row) { return row.key != request.principal.account; });
  }
  if (!by_day) {
    rows = summed(rows);
  }
  spec::JsonWriter json;
  json.begin_object().key("from").string(date_of(from)).key("usage").begin_array();
  for (const spec::KeyUsage& row : rows) {
    write_usage_row(json, row, by_day);
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

}  // namespace

std::vector<Endpoint> usage_endpoints() {
  return {{{"GET", "/api/usage"}, Access::kInference, show_usage}};
}

}  // namespace heddle::gateway
