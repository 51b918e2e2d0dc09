#include "gateway/web_rules.h"

#include <string>

#include <gtest/gtest.h>

#include "gateway/task.h"

namespace heddle::gateway {
namespace {

Task<void> nobody(std::shared_ptr<Context>, HttpExchange&, std::string) {
  co_return;
}

const Endpoint kJsonEndpoint{{"POST", "/v1/completions"}, Access::kInference, nobody};
const Endpoint kAnyEndpoint{{"POST", "/v1/audio/{id}"}, Access::kInference, nobody, Body::kAny};

/// The status that a request is refused with, or 0.
int refused(const WebRules& rules,
            const HttpFields& headers,
            const std::string& method = "GET",
            const std::string& path = "/v1/models",
            const Endpoint* endpoint = &kJsonEndpoint) {
  const auto no = rules.refuse(
      {.method = method, .path = path, .headers = headers}, read_facts_of(headers), endpoint);
  return no ? no->status : 0;
}

int refused_host(const WebRules& rules, const std::string& host) {
  return refused(rules, {{"Host", host}});
}

WebRules::Options on(const std::string& host) {
  return {.listen = {{.host = host, .port = 8080}}, .machine = "Box.Example"};
}

TEST(WebRules, OnLoopbackHostsAreLocal) {
  for (const char* listen : {"127.0.0.1", "::1", "localhost"}) {
    const WebRules rules(on(listen));
    EXPECT_EQ(refused_host(rules, "localhost:8080"), 0);
    EXPECT_EQ(refused_host(rules, "[::1]:8080"), 0);
    EXPECT_EQ(refused_host(rules, "127.0.0.1"), 0);
    EXPECT_EQ(refused_host(rules, "evil.example:8080"), 403);
    EXPECT_EQ(refused_host(rules, "192.168.1.5:8080"), 403);
    EXPECT_EQ(refused_host(rules, "localhost@evil.example"), 403);
    EXPECT_EQ(refused(rules, {}), 0) << "of HTTP/1.0, which browsers do not speak";
  }
}

TEST(WebRules, BeyondLoopbackHostsAreAddressesAndNamesOfOnesOwnNetwork) {
  const WebRules rules(on("0.0.0.0"));
  for (const char* host : {"192.168.1.5:8080",
                           "[fd00::1]:8080",
                           "heddle:8080",
                           "box.local",
                           "heddle.models.svc.cluster.local:80",
                           "models.internal",
                           "box.example:8080"}) {
    EXPECT_EQ(refused_host(rules, host), 0) << host;
  }
  for (const char* host : {"evil.example", "local.evil.example", "192.168.1.5.evil.example"}) {
    EXPECT_EQ(refused_host(rules, host), 403) << host;
  }
  EXPECT_EQ(refused_host(WebRules(on("models.example")), "models.example:8080"), 0)
      << "the name that it listens on";
}

TEST(WebRules, ConfiguredHostsAreTaken) {
  WebRules::Options options = on("127.0.0.1");
  options.allowed_hosts = {"models.example", "other.example:8443"};
  const WebRules rules(options);
  EXPECT_EQ(refused_host(rules, "Models.Example.:80"), 0);
  EXPECT_EQ(refused_host(rules, "other.example:8443"), 0);
  EXPECT_EQ(refused_host(rules, "other.example"), 403);
  EXPECT_EQ(refused_host(rules, "sub.models.example"), 403);
  options.allowed_hosts = {"*"};
  EXPECT_EQ(refused_host(WebRules(options), "evil.example"), 0);
}

TEST(WebRules, WithKeysHostsMatterWhereTheyAreConfigured) {
  WebRules::Options options = on("0.0.0.0");
  options.keys_asked = true;
  EXPECT_EQ(refused_host(WebRules(options), "any.example"), 0);
  options.allowed_hosts = {"models.example"};
  EXPECT_EQ(refused_host(WebRules(options), "any.example"), 403);
  EXPECT_EQ(refused_host(WebRules(options), "models.example"), 0);
}

TEST(WebRules, ForeignOriginsAreRefusedWhateverTheyAskFor) {
  const WebRules rules(on("127.0.0.1"));
  for (const char* origin : {"https://evil.example",
                             "http://localhost:3000",
                             "http://localhost",
                             "http://127.0.0.1:8080",
                             "http://localhost:8080.evil.example",
                             "http://localhost:8080@evil.example",
                             "http://localhost:8080, http://evil.example",
                             "null",
                             "",
                             "file://",
                             "chrome-extension://abc"}) {
    for (const char* method : {"GET", "POST", "OPTIONS"}) {
      EXPECT_EQ(refused(rules, {{"Host", "localhost:8080"}, {"Origin", origin}}, method), 403)
          << origin;
    }
  }
  EXPECT_EQ(refused(rules, {{"Host", "localhost:8080"}, {"Origin", "http://localhost:8080"}}), 0);
  EXPECT_EQ(refused(rules,
                    {{"Host", "localhost:8080"},
                     {"Origin", "http://localhost:8080"},
                     {"Origin", "https://evil.example"}}),
            403);
}

TEST(WebRules, PagesThatTellNoOriginAreRefusedButForVisits) {
  const WebRules rules(on("127.0.0.1"));
  const HttpFields image{{"Host", "localhost"},
                         {"Sec-Fetch-Site", "cross-site"},
                         {"Sec-Fetch-Mode", "no-cors"},
                         {"Sec-Fetch-Dest", "image"}};
  EXPECT_EQ(refused(rules, image, "GET", "/upstream/a/"), 403);
  EXPECT_EQ(refused(rules, image, "GET", "/ui/"), 403);
  HttpFields visit = image;
  visit[2].second = "navigate";
  visit[3].second = "document";
  EXPECT_EQ(refused(rules, visit, "GET", "/ui/"), 0);
  EXPECT_EQ(refused(rules, visit, "GET", "/"), 0);
  EXPECT_EQ(refused(rules, visit, "GET", "/metrics"), 403);
  EXPECT_EQ(refused(rules, visit, "POST", "/"), 403);
  visit[3].second = "iframe";
  EXPECT_EQ(refused(rules, visit, "GET", "/ui/"), 403);
  for (const char* site : {"same-origin", "none"}) {
    EXPECT_EQ(refused(rules, {{"Host", "localhost"}, {"Sec-Fetch-Site", site}}), 0) << site;
  }
  EXPECT_EQ(refused(rules, {{"Host", "localhost"}, {"Sec-Fetch-Site", "same-site"}}), 403)
      << "another port of this machine";
}

int refused_body(const HttpFields& more, const Endpoint* endpoint = &kJsonEndpoint) {
  HttpFields headers{{"Host", "localhost"}};
  headers.insert(headers.end(), more.begin(), more.end());
  return refused(WebRules(on("127.0.0.1")), headers, "POST", "/v1/completions", endpoint);
}

TEST(WebRules, BodiesAreJson) {
  for (const char* type : {"application/json",
                           "Application/JSON; charset=utf-8",
                           "application/json ;charset=utf-8",
                           "application/problem+json",
                           "application/octet-stream",
                           "application/x-www-form-urlencoded"}) {
    EXPECT_EQ(refused_body({{"Content-Type", type}}), 0) << type;
  }
  EXPECT_EQ(refused_body({}), 0) << "of programs that say none";
  for (const char* type : {"text/plain",
                           "text/plain;charset=UTF-8",
                           "multipart/form-data; boundary=x",
                           "application/jsonp",
                           "+json"}) {
    EXPECT_EQ(refused_body({{"Content-Type", type}}), 415) << type;
  }
}

TEST(WebRules, BodiesThatAreCodedAreForEnginesAlone) {
  EXPECT_EQ(refused_body({{"Content-Encoding", "gzip"}}), 415);
  EXPECT_EQ(refused_body({{"content-encoding", "zstd"}, {"Content-Type", "application/json"}}),
            415);
  EXPECT_EQ(refused_body({{"Content-Encoding", "identity"}}), 0);
  EXPECT_EQ(refused_body({{"Content-Encoding", "gzip"}}, &kAnyEndpoint), 0);
}

TEST(WebRules, WhatAPageMaySendUnaskedIsRefusedWhereAPageMayHaveSentIt) {
  for (const HttpFields::value_type& mark : HttpFields{
           {"Referer", "http://evil.example/"}, {"Cookie", "a=b"}, {"Sec-Fetch-Mode", "no-cors"}}) {
    for (const Endpoint* endpoint : {&kJsonEndpoint, &kAnyEndpoint}) {
      EXPECT_EQ(refused_body({mark}, endpoint), 415);
      EXPECT_EQ(refused_body({mark, {"Content-Type", "text/plain"}}, endpoint), 415);
      EXPECT_EQ(
          refused_body({mark, {"Content-Type", "application/x-www-form-urlencoded"}}, endpoint),
          415);
      EXPECT_EQ(refused_body({mark, {"Content-Type", "multipart/form-data; boundary=x"}}, endpoint),
                415);
      EXPECT_EQ(refused_body({mark, {"Content-Type", "application/json"}}, endpoint), 0);
    }
  }
  const HttpFields::value_type sound{"Content-Type", "multipart/form-data; boundary=x"};
  const HttpFields::value_type fetched{"Sec-Fetch-Mode", "cors"};
  for (const HttpFields::value_type& key :
       HttpFields{{"Authorization", "Bearer x"}, {"x-api-key", "x"}}) {
    EXPECT_EQ(refused_body({fetched, sound, key}, &kAnyEndpoint), 0) << "Node's fetch sends that";
  }
  EXPECT_EQ(refused_body({fetched, sound, {"Authorization", "Basic x"}}, &kAnyEndpoint), 415)
      << "browsers add that by themselves";
  EXPECT_EQ(refused_body({sound}, &kAnyEndpoint), 0) << "a program's upload for an engine";
  EXPECT_EQ(refused_body({sound, {"Origin", "http://localhost"}}, &kAnyEndpoint), 0);
  EXPECT_EQ(refused_body({sound, {"Origin", "http://evil.example"}}, &kAnyEndpoint), 403);
}

std::string value_of(const HttpFields& headers, const std::string& name) {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return "";
}

TEST(WebRules, ConfiguredOriginsMayReadWhatTheyAskFor) {
  WebRules::Options options = on("127.0.0.1");
  options.cors_origins = {"https://chat.example"};
  const WebRules rules(options);
  const HttpFields headers{{"Host", "localhost"},
                           {"Origin", "https://chat.example"},
                           {"Access-Control-Request-Method", "POST"},
                           {"Access-Control-Request-Headers", "authorization,x-stainless-os"},
                           {"Access-Control-Request-Private-Network", "true"}};
  const HttpHead preflight{.method = "OPTIONS", .path = "/v1/models", .headers = headers};
  EXPECT_FALSE(rules.refuse(preflight, read_facts_of(headers), nullptr));
  const HttpFields answer = rules.answer_headers(preflight, read_facts_of(headers));
  EXPECT_EQ(value_of(answer, "Access-Control-Allow-Origin"), "https://chat.example");
  EXPECT_EQ(value_of(answer, "Vary"), "Origin");
  EXPECT_EQ(value_of(answer, "Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  EXPECT_NE(value_of(answer, "Access-Control-Allow-Methods").find("POST"), std::string::npos);
  EXPECT_EQ(value_of(answer, "Access-Control-Allow-Private-Network"), "true");
  EXPECT_EQ(value_of(answer, "Access-Control-Max-Age"), "600");
  const HttpHead request{.method = "POST", .path = "/v1/models", .headers = headers};
  EXPECT_FALSE(rules.refuse(request, read_facts_of(headers), &kJsonEndpoint));
  const HttpFields told = rules.answer_headers(request, read_facts_of(headers));
  EXPECT_EQ(value_of(told, "Access-Control-Allow-Origin"), "https://chat.example");
  EXPECT_NE(value_of(told, "Access-Control-Expose-Headers"), "");
  EXPECT_EQ(value_of(told, "Access-Control-Allow-Methods"), "");
}

TEST(WebRules, OthersMayNotReadIt) {
  WebRules::Options options = on("127.0.0.1");
  const HttpFields headers{{"Origin", "https://evil.example"}};
  const HttpHead head{.method = "GET", .path = "/", .headers = headers};
  EXPECT_TRUE(WebRules(options).answer_headers(head, read_facts_of(headers)).empty());
  options.cors_origins = {"https://chat.example"};
  const HttpFields answer = WebRules(options).answer_headers(head, read_facts_of(headers));
  EXPECT_EQ(value_of(answer, "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(value_of(answer, "Vary"), "Origin");
  options.cors_origins = {"*"};
  EXPECT_EQ(value_of(WebRules(options).answer_headers(head, read_facts_of(headers)),
                     "Access-Control-Allow-Origin"),
            "https://evil.example");
}

}  // namespace
}  // namespace heddle::gateway
