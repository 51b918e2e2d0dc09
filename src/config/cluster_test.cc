#include "config/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::HasSubstr;

Result<Config> parse_cluster(const std::string& text) {
  return parse_config(
      text, "/etc/heddle.yaml", process_environment, {.cores = {0}, .memory = 1U << 30U});
}

TEST(Cluster, NamesItsProcessesInOrder) {
  const Result<Config> config = parse_cluster(R"(
cluster:
  name: prod
  certs: certs
  registry: "etcd://10.0.0.9:2379"
  managers: {m1: {address: "10.0.0.1:7700"}}
  hosts:
    zebra: {address: "zebra.example:7701"}
    ape: {address: "[fd00::2]:7701"}
  gateways: [g1, g2]
)");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_TRUE(config->cluster.has_value());
  EXPECT_EQ(*config->cluster,
            (ClusterConfig{.name = "prod",
                           .certs = "/etc/certs",
                           .registry = "etcd://10.0.0.9:2379",
                           .managers = {{.name = "m1", .host = "10.0.0.1", .port = 7700}},
                           .hosts = {{.name = "zebra", .host = "zebra.example", .port = 7701},
                                     {.name = "ape", .host = "fd00::2", .port = 7701}},
                           .gateways = {"g1", "g2"}}));
  EXPECT_FALSE(parse_cluster("models: {}")->cluster.has_value());
}

TEST(Cluster, WhatCannotBeReachedIsRefused) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"cluster: {}", "cluster.name: is missing"},
           {"cluster: {name: c, hosts: {h: {}}}", "cluster.hosts.h.address: is missing"},
           {"cluster: {name: c, hosts: {h: {address: ':7700'}}}", "want host:port"},
           {"cluster: {name: c, hosts: {h: {address: 'h:0'}}}", "want host:port"},
           {"cluster: {name: c, managers: {m: {address: 'https://m:7700'}}}", "want host:port"}}) {
    const Result<Config> config = parse_cluster(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(says));
  }
}

}  // namespace
}  // namespace heddle::config
