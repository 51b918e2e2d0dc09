#include <memory>
#include <utility>

#include "api/requests.h"
#include "base/log.h"
#include "gateway/handlers.h"
#include "gateway/text_work.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

void write_name(spec::JsonWriter& json, const std::string& name) {
  if (name.empty()) {
    json.null();
  } else {
    json.string(name);
  }
}

Task<void> list_profiles(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  spec::JsonWriter json;
  json.begin_object().key("active");
  write_name(json, context->names.active());
  json.key("profiles").begin_array();
  for (const config::ProfileConfig& profile : context->names.profiles()) {
    json.begin_object().key("id").string(profile.id);
    json.key("description").string(profile.description).key("pins").begin_object();
    for (const auto& [name, target] : profile.pins) {
      json.key(name).string(target);
    }
    json.end_object().end_object();
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

Task<void> activate_profile(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_profile_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const std::string name = std::get<0>(std::move(parsed));
  if (!context->names.activate(name)) {
    api::ApiError unknown = api::invalid_request("name", "there is no profile of that name");
    unknown.status = 404;
    co_await respond_error(http, std::move(unknown));
    co_return;
  }
  log::info("another profile is active", {{"profile", name.empty() ? "none" : name}});
  spec::JsonWriter json;
  json.begin_object().key("active");
  write_name(json, name);
  co_await respond_json(http, std::move(json.end_object()).take());
}

}  // namespace

std::vector<Endpoint> profile_endpoints() {
  return {{{"GET", "/api/profiles"}, Access::kAny, list_profiles},
          {{"PUT", "/api/profiles/active"}, Access::kAdmin, activate_profile}};
}

}  // namespace heddle::gateway
