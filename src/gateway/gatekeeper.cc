#include "gateway/gatekeeper.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace heddle::gateway {

namespace {

using config::Role;

std::string_view name(Role role) {
  switch (role) {
    case Role::kInference:
      return "inference";
    case Role::kMetrics:
      return "metrics";
    case Role::kAdmin:
      return "admin";
  }
  return "";
}

/// The role that opens what does not open to every key.
Role role_for(Access access) {
  switch (access) {
    case Access::kInference:
      return Role::kInference;
    case Access::kMetrics:
      return Role::kMetrics;
    case Access::kOpen:
    case Access::kAny:
    case Access::kAdmin:
      break;
  }
  return Role::kAdmin;
}

bool may(Role role, Access access) {
  return role == Role::kAdmin || access == Access::kOpen || access == Access::kAny ||
         role == role_for(access);
}

api::ApiError wrong_role(Role role, const Endpoint& endpoint) {
  const Role wanted = role_for(endpoint.access);
  std::string message = std::string(endpoint.route.method) + " " +
                        std::string(endpoint.route.path) + " needs a key of the role ";
  message += name(wanted);
  message +=
      wanted == Role::kAdmin ? "; this key has the role " : " or admin; this key has the role ";
  message += name(role);
  return {.status = 403,
          .message = std::move(message),
          .type = "permission_error",
          .code = "insufficient_permissions"};
}

}  // namespace

Gatekeeper::Gatekeeper(std::shared_ptr<const Routing> routing) : routing_(std::move(routing)) {}

void Gatekeeper::assign(ApiKeys keys, WebRules rules) {
  rules_.emplace(Rules{.keys = std::move(keys), .web = std::move(rules)});
}

Admission Gatekeeper::admit(const HttpHead& asked) const {
  HEDDLE_CHECK(rules_.has_value());
  const std::string meant = meant_path(routing_->routes, asked.method, asked.path);
  const HttpHead head{.method = asked.method,
                      .path = meant.empty() ? asked.path : std::string_view(meant),
                      .headers = asked.headers};
  const HeadFacts facts = read_facts_of(head.headers);
  const std::optional<std::size_t> route = find_route(routing_->routes, head.method, head.path);
  const Endpoint* endpoint = route ? &routing_->endpoints[*route] : nullptr;
  Admission admission{.headers = rules_->web.answer_headers(head, facts)};
  if (std::optional<api::ApiError> no = rules_->web.refuse(head, facts, endpoint)) {
    admission.principal = std::move(*no);
  } else {
    admission.principal = admit(facts, head, endpoint);
  }
  admission.path = meant;
  return admission;
}

api::Parsed<Principal> Gatekeeper::admit(const HeadFacts& facts,
                                         const HttpHead& head,
                                         const Endpoint* endpoint) const {
  // A preflight has no key; nothing is told to it but methods.
  if (head.method == "OPTIONS" || (endpoint != nullptr && endpoint->access == Access::kOpen)) {
    return Principal{};
  }
  const std::optional<Principal> principal =
      rules_->keys.admit({.authorization = facts.authorization, .api_key = facts.api_key});
  if (!principal) {
    return api::ApiError{.status = 401,
                         .message =
                             "no valid API key; send one of this server's as "
                             "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
                         .type = "authentication_error",
                         .code = "invalid_api_key"};
  }
  if (endpoint != nullptr && !may(principal->role, endpoint->access)) {
    return wrong_role(principal->role, *endpoint);
  }
  return *principal;
}

}  // namespace heddle::gateway
