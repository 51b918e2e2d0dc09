#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "api/requests.h"
#include "gateway/answered.h"
#include "gateway/handlers.h"
#include "gateway/text_work.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

/// What runs on a host, as its devices have it.
void write_load(spec::JsonWriter& json,
                HostId host,
                const std::vector<core::DeviceStatus>& devices) {
  std::int64_t requests = 0;
  std::uint64_t bytes = 0;
  std::uint64_t free = 0;
  json.key("devices").begin_array();
  for (const core::DeviceStatus& device : devices) {
    if (host_of(device.id) == host) {
      json.string(device.name);
      bytes += static_cast<std::uint64_t>(device.usage.total) * device.page_bytes;
      free += static_cast<std::uint64_t>(device.usage.free) * device.page_bytes;
    }
  }
  json.end_array().key("models").begin_array();
  for (const core::DeviceStatus& device : devices) {
    for (const core::ResidentStatus& resident : device.residents) {
      if (host_of(device.id) == host) {
        json.string(resident.model);
        requests += resident.requests_running;
      }
    }
  }
  json.end_array().key("requests_running").integer(requests);
  json.key("bytes").integer(bytes).key("bytes_free").integer(free);
}

void write_text(spec::JsonWriter& json, const char* key, const std::string& text) {
  json.key(key);
  if (text.empty()) {
    json.null();
  } else {
    json.string(text);
  }
}

Task<void> list_hosts(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const std::vector<core::DeviceStatus> devices = context->serving->devices();
  const Instant now = context->now();
  spec::JsonWriter json;
  json.begin_object().key("hosts").begin_array();
  for (const core::HostEntry& host : context->serving->hosts()) {
    json.begin_object().key("name").string(host.name);
    write_text(json, "address", host.address);
    json.key("state").string(core::name(host.presence));
    json.key("since_ms");
    if (host.since == Instant{}) {
      json.null();
    } else {
      json.number(std::chrono::duration<double, std::milli>(now - host.since).count());
    }
    write_text(json, "version", host.build);
    write_text(json, "isa", host.isa);
    write_text(json, "trouble", host.trouble);
    write_load(json, host.id, devices);
    json.end_object();
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

api::ApiError unknown_host(const std::string& name, const std::vector<core::HostEntry>& hosts) {
  std::string known;
  for (const core::HostEntry& host : hosts) {
    known += (known.empty() ? "" : ", ") + host.name;
  }
  return {.status = 404,
          .message = "there is no host \"" + std::string(api::shorten(name, 100)) + "\"; " +
                     (known.empty() ? "no manager has told of any" : "there are " + known),
          .type = "invalid_request_error",
          .param = "host",
          .code = "host_not_found"};
}

/// Waits for the manager to have told the host, or to say why it cannot.
Task<Result<void>> carry_out(Context& context, HostId host, bool leaving) {
  std::function<void(std::function<void(Result<void>)>)> begin =
      [&context, host, leaving](std::function<void(Result<void>)> done) {
        context.serving->leave(host, leaving, std::move(done));
      };
  co_return co_await answered(context.loop, std::move(begin));
}

Task<void> leave(std::shared_ptr<Context> context, HttpExchange& http, bool leaving) {
  auto parsed = co_await parse_body(*context, http, &api::parse_host_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const std::string name = std::get<0>(std::move(parsed));
  if (context->serving == nullptr) {
    co_await respond_error(http, api::unavailable("the server is shutting down"));
    co_return;
  }
  const std::vector<core::HostEntry> hosts = context->serving->hosts();
  const auto host = std::ranges::find(hosts, name, &core::HostEntry::name);
  if (host == hosts.end()) {
    co_await respond_error(http, unknown_host(name, hosts));
    co_return;
  }
  const Result<void> done = co_await carry_out(*context, host->id, leaving);
  if (!done) {
    co_await respond_error(http, api::from_error(done.error()));
    co_return;
  }
  co_await respond_json(http, R"({"success":true})");
}

Task<void> drain(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await leave(std::move(context), http, true);
}
Task<void> undrain(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await leave(std::move(context), http, false);
}

/// Waits for the system behind to take the configuration over, or to say what is wrong with it.
Task<Result<void>> carry_out(Context& context, api::ApplyRequest request) {
  std::function<void(std::function<void(Result<void>)>)> begin =
      [&context, &request](std::function<void(Result<void>)> done) {
        context.serving->apply(std::move(request.configuration), request.dry_run, std::move(done));
      };
  co_return co_await answered(context.loop, std::move(begin));
}

Task<void> apply(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_apply_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  if (context->serving == nullptr) {
    co_await respond_error(http, api::unavailable("the server is shutting down"));
    co_return;
  }
  const Result<void> done = co_await carry_out(*context, std::get<0>(std::move(parsed)));
  if (!done) {
    co_await respond_error(http, api::from_error(done.error(), "configuration"));
    co_return;
  }
  co_await respond_json(http, R"({"success":true})");
}

}  // namespace

std::vector<Endpoint> host_endpoints() {
  return {{{"GET", "/api/hosts"}, Access::kMetrics, list_hosts},
          {{"POST", "/api/configuration"}, Access::kAdmin, apply},
          {{"POST", "/api/hosts/drain"}, Access::kAdmin, drain},
          {{"POST", "/api/hosts/undrain"}, Access::kAdmin, undrain}};
}

}  // namespace heddle::gateway
