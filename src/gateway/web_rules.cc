#include "gateway/web_rules.h"

#include <algorithm>
#include <utility>

#include "gateway/upstream.h"

namespace heddle::gateway {

namespace {

constexpr std::size_t kShownMax = 100;
constexpr const char* kAny = "*";
constexpr const char* kPreflightSeconds = "600";

std::string shown(std::string_view text) {
  return "\"" + std::string(text.substr(0, kShownMax)) + "\"";
}

api::ApiError forbidden(std::string code, std::string message) {
  return {.status = 403,
          .message = std::move(message),
          .type = "permission_error",
          .code = std::move(code)};
}

void note_once(std::optional<std::string_view>& fact, std::string_view value, bool& doubled) {
  doubled = doubled || fact.has_value();
  fact = value;
}

/// Names that no page can have, as the public DNS does not: those without a dot, and those in the
/// domains that are kept for networks of one's own.
bool is_private_name(const config::WebHost& host) {
  const std::string& name = host.name;
  return name.find('.') == std::string::npos || name.ends_with(".local") ||
         name.ends_with(".internal") || name.ends_with(".home.arpa");
}

/// The type without parameters.
std::string_view media_type(std::string_view value) {
  value = value.substr(0, value.find(';'));
  while (value.ends_with(' ') || value.ends_with('\t')) {
    value.remove_suffix(1);
  }
  return value;
}

bool is_json(std::string_view type) {
  constexpr std::string_view kSuffix = "+json";
  return is_same_field(type, "application/json") ||
         (type.size() > kSuffix.size() &&
          is_same_field(type.substr(type.size() - kSuffix.size()), kSuffix));
}

/// Whether a page may send bodies of this type without asking first.
bool is_simple(const std::optional<std::string_view>& type) {
  return !type || type->empty() || is_same_field(*type, "text/plain") ||
         is_same_field(*type, "application/x-www-form-urlencoded") ||
         is_same_field(*type, "multipart/form-data");
}

/// Whether it has a header that no page may send without asking first, and no browser by itself.
bool shows_key(const HeadFacts& facts) {
  constexpr std::string_view kBearer = "Bearer ";
  return !facts.api_key.empty() ||
         is_same_field(facts.authorization.substr(0, kBearer.size()), kBearer);
}

/// A type that the endpoint does not take, or that a page whose origin nobody tells may have sent.
std::optional<api::ApiError> refuse_type(const HeadFacts& facts, Body body) {
  if (body == Body::kJson && !facts.encoding.empty()) {
    api::ApiError coded =
        api::invalid_request("",
                             "the body has the Content-Encoding " + shown(facts.encoding) +
                                 "; want it as it is, without one");
    coded.status = 415;
    coded.code = "unsupported_content_encoding";
    return coded;
  }
  std::optional<std::string_view> type = facts.content_type;
  if (type) {
    type = media_type(*type);
  }
  // curl and some clients of Ollama's API say nothing of a body, and their libraries then this.
  const bool unspoken = !type || type->empty() ||
                        is_same_field(*type, "application/x-www-form-urlencoded") ||
                        is_same_field(*type, "application/octet-stream");
  const bool taken = body == Body::kAny || unspoken || is_json(*type);
  const bool forged =
      facts.browser && is_simple(type) && facts.site != "same-origin" && !shows_key(facts);
  if (taken && !forged) {
    return std::nullopt;
  }
  api::ApiError wrong = api::invalid_request(
      "",
      "the body has " + (type ? "the content type " + shown(*type) : "no content type") +
          "; want the header Content-Type: application/json");
  wrong.status = 415;
  wrong.code = "unsupported_media_type";
  return wrong;
}

/// A link that somebody follows to the page of this server.
bool is_visit(const HttpHead& head, const HeadFacts& facts) {
  return head.method == "GET" && facts.mode == "navigate" && facts.dest == "document" &&
         (head.path == "/" || head.path == "/ui" || head.path == "/ui/");
}

}  // namespace

HeadFacts read_facts_of(const HttpFields& headers) {
  HeadFacts facts;
  for (const auto& [name, value] : headers) {
    const auto is = [&given = name](std::string_view wanted) {
      return is_same_field(given, wanted);
    };
    switch (name.size()) {  // Most names are told apart by their lengths.
      case 4:
        if (is("host")) {
          note_once(facts.host, value, facts.doubled);
        }
        break;
      case 6:
        if (is("origin")) {
          note_once(facts.origin, value, facts.doubled);
        }
        facts.browser = facts.browser || is("cookie");
        break;
      case 7:
        facts.browser = facts.browser || is("referer");
        break;
      case 9:
        facts.api_key = facts.api_key.empty() && is("x-api-key") ? value : facts.api_key;
        break;
      case 12:
        if (!facts.content_type && is("content-type")) {
          facts.content_type = value;
        }
        break;
      case 13:
        if (facts.authorization.empty() && is("authorization")) {
          facts.authorization = value;
        }
        break;
      case 14:
        if (is("sec-fetch-site")) {
          facts.site = value;
        } else if (is("sec-fetch-mode")) {
          facts.mode = value;
        } else if (is("sec-fetch-dest")) {
          facts.dest = value;
        }
        break;
      case 16:
        if (is("content-encoding") && !is_same_field(value, "identity")) {
          facts.encoding = value;
        }
        break;
      case 29:
        facts.asked_method = is("access-control-request-method") ? value : facts.asked_method;
        break;
      case 30:
        facts.asked_headers = is("access-control-request-headers") ? value : facts.asked_headers;
        break;
      case 38:
        facts.asked_private = facts.asked_private ||
                              (is("access-control-request-private-network") && value == "true");
        break;
      default:
        break;
    }
  }
  facts.browser =
      facts.browser || !facts.site.empty() || !facts.mode.empty() || !facts.dest.empty();
  return facts;
}

WebRules::WebRules(const Options& options)
    : hosts_(options.allowed_hosts), origins_(options.cors_origins) {
  const auto has_any = [](const std::vector<std::string>& texts) {
    return std::find(texts.begin(), texts.end(), kAny) != texts.end();
  };
  check_hosts_ = (!options.keys_asked || !hosts_.empty()) && !has_any(hosts_);
  any_origin_ = has_any(origins_);
  for (const config::ListenAddress& address : options.listen) {
    const auto host = config::parse_listen_host(address.host);
    loopback_ = loopback_ && host && host->local;
    hosts_.push_back(host ? host->name : address.host);
  }
  if (const auto machine = config::parse_web_host(options.machine)) {
    hosts_.push_back(machine->name);
  }
}

bool WebRules::is_known(const config::WebHost& host) const {
  if (host.local || (!loopback_ && (host.numeric || is_private_name(host)))) {
    return true;
  }
  const std::string with_port = host.name + ":" + std::to_string(host.port.value_or(0));
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const std::string& known) {
    return known == host.name || (host.port && known == with_port);
  });
}

api::ApiError WebRules::foreign_host(std::string_view host) const {
  return forbidden("foreign_host",
                   "the header Host is " + shown(host) +
                       ", which is no name of this server: it takes " +
                       (loopback_ ? "local names" : "addresses and names of its own network") +
                       "; if it is called so, add that name to allowed_hosts in its configuration");
}

bool WebRules::is_configured(std::string_view origin) const {
  const std::optional<std::string> spelled = config::parse_origin(origin);
  return any_origin_ ||
         (spelled && std::find(origins_.begin(), origins_.end(), *spelled) != origins_.end());
}

std::optional<api::ApiError> WebRules::refuse(const HttpHead& head,
                                              const HeadFacts& facts,
                                              const Endpoint* endpoint) const {
  if (facts.doubled) {
    return forbidden("foreign_origin", "the header Host or Origin is there twice; want one");
  }
  std::optional<config::WebHost> host;
  if (facts.host && (check_hosts_ || facts.origin)) {
    host = config::parse_web_host(*facts.host);
  }
  // Programs may leave it out or empty; browsers cannot.
  if (check_hosts_ && facts.host && !facts.host->empty() && !(host && is_known(*host))) {
    return foreign_host(*facts.host);
  }
  if (facts.origin) {
    const std::optional<std::string> origin = config::parse_origin(*facts.origin);
    if ((origin && host && config::is_same_origin(*origin, *host)) ||
        is_configured(*facts.origin)) {
      return std::nullopt;
    }
    return forbidden("foreign_origin",
                     "the header Origin is " + shown(*facts.origin) +
                         ", from which web pages may not ask this server; to let them, add it to "
                         "cors_origins in its configuration");
  }
  const bool foreign = facts.site == "cross-site" || facts.site == "same-site";
  if (foreign && !is_visit(head, facts)) {
    return forbidden("foreign_origin",
                     "a web page of another origin asks for this, as the header Sec-Fetch-Site "
                     "says; want a request of its own, from an origin in cors_origins");
  }
  const bool has_body = head.method != "GET" && head.method != "OPTIONS";
  return has_body && endpoint != nullptr ? refuse_type(facts, endpoint->body) : std::nullopt;
}

HttpFields WebRules::answer_headers(const HttpHead& head, const HeadFacts& facts) const {
  HttpFields headers;
  if (origins_.empty()) {
    return headers;
  }
  headers.emplace_back("Vary", "Origin");
  if (!facts.origin || facts.doubled || !is_configured(*facts.origin)) {
    return headers;
  }
  headers.emplace_back("Access-Control-Allow-Origin", *facts.origin);
  if (head.method != "OPTIONS" || facts.asked_method.empty()) {
    headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    return headers;
  }
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
  if (!facts.asked_headers.empty()) {
    headers.emplace_back("Access-Control-Allow-Headers", facts.asked_headers);
  }
  if (facts.asked_private) {
    headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  headers.emplace_back("Access-Control-Max-Age", kPreflightSeconds);
  return headers;
}

}  // namespace heddle::gateway
