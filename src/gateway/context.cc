#include "gateway/context.h"

#include <chrono>
#include <utility>

#include "api/error_text.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

std::int64_t wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::map<DeviceId, std::string> device_names(const core::Serving& serving) {
  std::map<DeviceId, std::string> names;
  for (const core::DeviceStatus& device : serving.devices()) {
    names[device.id] = device.name;
  }
  return names;
}

std::string places_of(const core::ModelStatus& model,
                      const std::map<DeviceId, std::string>& names) {
  const auto name = [&names](DeviceId device) {
    const auto found = names.find(device);
    return found == names.end() ? std::string() : found->second;
  };
  std::string places = model.device ? name(*model.device) : "";
  for (const DeviceId peer : model.peers) {
    places += "+" + name(peer);
  }
  return places;
}

std::string device_name(Context& context, std::optional<DeviceId> device) {
  if (!device) {
    return {};
  }
  if (!context.devices.contains(*device)) {
    // Those that have left stay known, for requests that were there.
    context.devices.merge(device_names(*context.serving));
  }
  const auto found = context.devices.find(*device);
  return found == context.devices.end() ? std::string() : found->second;
}

std::int64_t Context::usage_day() {
  return wall_clock_ms() / 86'400'000;
}

void account_for(Context& context,
                 const Asker& asker,
                 const std::string& model,
                 const api::Usage& used) {
  context.usage.add({.day = Context::usage_day(),
                     .key = asker.account,
                     .model = model,
                     .requests = 1,
                     .prompt_tokens = used.prompt_tokens,
                     .cached_tokens = used.cached_tokens,
                     .completion_tokens = used.completion_tokens});
  context.quotas.charge(asker.tenant, used.prompt_tokens + used.completion_tokens, context.now());
}

std::vector<TraceIncident> name_incidents(Context& context,
                                          const std::vector<core::Incident>& incidents) {
  std::vector<TraceIncident> named;
  named.reserve(incidents.size());
  for (const core::Incident& incident : incidents) {
    named.push_back({.what = incident, .device = device_name(context, incident.device)});
  }
  return named;
}

Task<void> respond_error(HttpExchange& http, api::ApiError error) {
  const HttpRequest& request = http.request();
  HttpResponse response{.status = api::error_status(error, request.path),
                        .body = api::error_text(error, request.path, request.request_id)};
  if (error.retry_after > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  // A client that has gone does not need the answer.
  (void)co_await http.respond(std::move(response));
}

Task<void> respond_json(HttpExchange& http, std::string json) {
  HttpResponse response{.body = std::move(json)};
  (void)co_await http.respond(std::move(response));
}

}  // namespace heddle::gateway
