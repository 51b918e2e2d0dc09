#include "config/access.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/web_names.h"

namespace heddle::config {

namespace {

constexpr std::int64_t kPriorityMost = 1'000'000;
constexpr std::int64_t kQuotaMost = 1'000'000'000'000;
constexpr const char* kAny = "*";

ApiKey declare_key(Fields& f) {
  ApiKey key;
  f.text({"key", "What clients present."}, key.key);
  f.require("key", "it is what clients present");
  f.text({"name", "What logs and messages call the key, which they never show."}, key.name);
  auto role = static_cast<std::size_t>(key.role);
  f.choice({"role",
            "inference: ask models and see its own requests; metrics: see how models and devices "
            "do; admin: everything."},
           {"inference", "metrics", "admin"},
           role);
  key.role = static_cast<Role>(role);
  std::int64_t priority = -kPriorityMost;
  f.integer({"priority", "The most urgent (least) priority that its requests get; any if absent."},
            {.least = -kPriorityMost, .most = kPriorityMost},
            priority);
  if (f.has("priority")) {
    key.priority = priority;
  }
  f.integer({"requests_per_minute", "How many requests it may make in a minute; 0: any."},
            {.least = 0, .most = kQuotaMost},
            key.requests_per_minute);
  f.integer({"tokens_per_minute",
             "How many tokens of prompts and answers it may use in a minute; 0: any."},
            {.least = 0, .most = kQuotaMost},
            key.tokens_per_minute);
  return key;
}

void declare_keys(Fields& f, Config& config) {
  std::vector<ApiKey>& keys = config.api_keys;
  f.entries(
      {"apiKeys",
       "Keys that clients may present: strings, for inference alone, or maps that say more; "
       "none means that no key is asked for."},
      [&keys](const std::string& text) { keys.push_back({.key = text}); },
      [&keys](Fields& item) { keys.push_back(declare_key(item)); });
  std::vector<std::string> texts;
  for (const ApiKey& key : keys) {
    texts.push_back(key.key);
  }
  std::sort(texts.begin(), texts.end());
  if (!texts.empty() && texts.front().empty()) {
    f.reject("apiKeys", "a key is empty; leave apiKeys out to ask for none");
  }
  if (std::adjacent_find(texts.begin(), texts.end()) != texts.end()) {
    f.reject("apiKeys", "a key is there twice; want each once, with its role");
  }
  const bool admin = std::any_of(
      keys.begin(), keys.end(), [](const ApiKey& key) { return key.role == Role::kAdmin; });
  if (!keys.empty() && !admin) {
    f.warn("apiKeys",
           "none has the role admin, so nobody may load or unload models or see the log; to change "
           "that add {key: KEY, role: admin}");
  }
}

/// Puts each into the spelling that `spell` gives it; refuses those that have none.
template <class Spell>
void spell_all(Fields& f,
               std::string_view key,
               const std::string& want,
               const Spell& spell,
               std::vector<std::string>& texts) {
  for (std::string& text : texts) {
    if (text == kAny) {
      continue;
    }
    if (const std::optional<std::string> spelled = spell(text)) {
      text = *spelled;
    } else {
      f.reject(key, "\"" + text + "\" is " + want);
    }
  }
}

std::optional<std::string> spell_host(std::string_view text) {
  const std::optional<WebHost> host = parse_web_host(text);
  if (!host) {
    return std::nullopt;
  }
  return host->port ? host->name + ":" + std::to_string(*host->port) : host->name;
}

}  // namespace

void declare_access(Fields& f, Config& config) {
  declare_keys(f, config);
  f.texts({"allowed_hosts",
           "Names, with or without a port, by which clients may call the server beside those of "
           "this machine; * for any."},
          config.allowed_hosts);
  spell_all(f,
            "allowed_hosts",
            "no name of a host; want such as models.example or models.example:8080, or *",
            spell_host,
            config.allowed_hosts);
  f.texts({"cors_origins",
           "Origins of web pages that may ask, such as https://chat.example; * for any."},
          config.cors_origins);
  spell_all(
      f,
      "cors_origins",
      "no origin; want such as https://chat.example or http://localhost:3000, without a path, "
      "or *",
      parse_origin,
      config.cors_origins);
}

}  // namespace heddle::config
