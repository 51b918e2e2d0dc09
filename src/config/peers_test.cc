#include "config/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<Config> parse(const std::string& text) {
  const Environment environment = [](const std::string& name) {
    return name == "SECRET" ? std::optional<std::string>("from-outside") : std::nullopt;
  };
  return parse_config(text, "/etc/heddle.yaml", environment, {.cores = {0}, .memory = 8ULL << 30U});
}

TEST(PeersConfig, AreReadAsLlamaSwapHasThem) {
  const Result<Config> config = parse(R"(
models: {}
peers:
  hosted:
    proxy: https://api.example.com/api/
    apiKey: ${env.SECRET}
    ca: authority.pem
    models: [big, org/small]
    filters: {stripParams: "top_k, model", setParams: {provider: {zdr: true}}}
    timeouts: {connect: 3, tlsHandshake: 4, responseHeader: 60, idleConn: 5}
  other: {proxy: "http://10.0.0.2:8080", models: [near]}
)");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->peers.size(), 2U);
  const PeerConfig& hosted = config->peers[0];
  EXPECT_EQ(hosted.name, "hosted");
  EXPECT_EQ(hosted.address.host, "api.example.com");
  EXPECT_EQ(hosted.address.port, 443);
  EXPECT_TRUE(hosted.address.tls);
  EXPECT_EQ(hosted.address.base_path, "/api");
  EXPECT_EQ(hosted.api_key, "from-outside");
  EXPECT_EQ(hosted.ca, "/etc/authority.pem");
  EXPECT_THAT(hosted.models, ElementsAre("big", "org/small"));
  EXPECT_THAT(hosted.filters.strip_params, ElementsAre("top_k"));
  EXPECT_THAT(hosted.filters.set_params, ElementsAre(Pair("provider", R"({"zdr":true})")));
  EXPECT_EQ(hosted.connect_timeout, 3s);
  EXPECT_EQ(hosted.tls_timeout, 4s);
  EXPECT_EQ(hosted.response_timeout, 60s);
  EXPECT_EQ(config->peers[1].address.port, 8080);
  EXPECT_FALSE(config->peers[1].address.tls);
  EXPECT_EQ(config->peers[1].connect_timeout, 30s);
}

TEST(PeersConfig, WhatCannotBeMeantIsRefused) {
  const auto problem = [](const std::string& peer) {
    const Result<Config> config =
        parse("models: {mine: {path: x, aliases: [me]}}\npeers: {p: " + peer + "}");
    return config ? "" : config.error().message;
  };
  EXPECT_THAT(problem("{models: [a]}"), HasSubstr("peers.p.proxy: is missing"));
  EXPECT_THAT(problem("{proxy: 'http://x'}"), HasSubstr("peers.p.models: is missing"));
  EXPECT_THAT(problem("{proxy: 'ftp://x', models: [a]}"), HasSubstr("proxy"));
  EXPECT_THAT(problem("{proxy: 'http://x', models: [me]}"), HasSubstr("another model already"));
  EXPECT_THAT(problem("{proxy: 'http://x', models: [a, a]}"), HasSubstr("another model already"));
  EXPECT_THAT(problem("{proxy: 'http://x', models: [a], apiKey: \"k\\nx: y\"}"),
              HasSubstr("line break"));
  EXPECT_THAT(problem("{proxy: 'http://x', models: [a], timeouts: {connect: 0}}"),
              HasSubstr("connect"));
}

}  // namespace
}  // namespace heddle::config
