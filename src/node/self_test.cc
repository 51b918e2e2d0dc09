#include "node/self.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/document.h"
#include "net/test_cluster.h"

namespace heddle::node {
namespace {

using testing::HasSubstr;

config::Config cluster_of(const net::TestCluster& authority) {
  const Result<config::Config> config = config::parse_config(R"(
cluster:
  name: prod
  certs: )" + authority.folder() + R"(
  managers: {m1: {address: "127.0.0.1:7700"}}
  hosts: {h1: {address: "127.0.0.2:7701"}, h2: {address: "h2.example:7701"}}
  gateways: [g1]
)",
                                                             "/etc/heddle.yaml",
                                                             config::process_environment,
                                                             {.cores = {0}, .memory = 1U << 30U});
  HEDDLE_CHECK(config.has_value());
  return *config;
}

TEST(NodeSelf, IsNumberedByItsPlaceAndKnownByItsCertificate) {
  net::TestCluster authority;
  (void)authority.issue(net::Role::kAgent, "h2");
  (void)authority.issue(net::Role::kManager, "m1");
  (void)authority.issue(net::Role::kGateway, "g1");
  const config::Config config = cluster_of(authority);
  const Result<NodeSelf> host = find_self(config, net::Role::kAgent, "h2", "1.0");
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(host->number, 2U);
  EXPECT_EQ(host->listen, (net::Address{.host = "0.0.0.0", .port = 7701}))
      << "its name is found out";
  EXPECT_GT(host->self.incarnation, 0U);
  EXPECT_EQ(host->self.build, "1.0");
  const Result<NodeSelf> manager = find_self(config, net::Role::kManager, "m1", "1.0");
  ASSERT_TRUE(manager);
  EXPECT_EQ(manager->listen, (net::Address{.host = "127.0.0.1", .port = 7700}));
  EXPECT_EQ(find_self(config, net::Role::kGateway, "g1", "1.0")->number, 1U);
}

TEST(NodeSelf, SaysWhatIsWrongAndWhatThereIs) {
  net::TestCluster authority;
  (void)authority.issue(net::Role::kGateway, "h1");
  const config::Config config = cluster_of(authority);
  const auto message = [&](net::Role role, const std::string& name) {
    return find_self(config, role, name, "1.0").error().message;
  };
  EXPECT_THAT(message(net::Role::kAgent, "h7"),
              HasSubstr("cluster.hosts has no \"h7\"; there are: h1, h2"));
  EXPECT_THAT(message(net::Role::kAgent, "h1"),
              HasSubstr("is that of gateway \"h1\" of cluster \"prod\"; this process is agent"));
  EXPECT_THAT(message(net::Role::kAgent, "h2"), HasSubstr("h2.crt"));
  EXPECT_THAT(find_self({.file = "heddle.yaml"}, net::Role::kAgent, "h1", "1.0").error().message,
              HasSubstr("cluster is missing"));
}

TEST(NodeSelf, TheClustersModelsAreServedOnTheHostsOwnDevices) {
  net::TestCluster authority;
  config::Config own = cluster_of(authority);
  own.devices[0].name = "mine";
  const Result<config::Config> both = with_cluster(
      own,
      "models: {a: {path: files/a}}\nhooks: {on_startup: {preload: [a]}}\nplanner: {weave: true}");
  ASSERT_TRUE(both) << both.error().message;
  ASSERT_EQ(both->models.size(), 1U);
  EXPECT_EQ(both->models[0].path, "files/a");
  EXPECT_EQ(both->preload, std::vector<std::string>{"a"});
  EXPECT_TRUE(both->planner.weave);
  EXPECT_EQ(both->devices[0].name, "mine");
  EXPECT_EQ(both->cluster, own.cluster);
  EXPECT_THAT(with_cluster(own, "model: {}").error().message, HasSubstr("model"));
  EXPECT_TRUE(with_cluster(own, "devices: [{kind: cuda, gpu: 77}]")) << "another host has it";
}

TEST(NodeSelf, WhichDeviceAnEngineIsOnEachHostSaysForItself) {
  net::TestCluster authority;
  const std::string text =
      "models: {a: {cmd: bin/serve, device: mine, memory: 4KiB}, b: {cmd: x, device: gpu7}}\n"
      "devices: [{kind: cuda, gpu: 77}]";
  const Result<config::Config> manager = parse_cluster(text, "/etc/heddle.yaml");
  ASSERT_TRUE(manager) << manager.error().message;
  EXPECT_EQ(manager->models[0].engine->device, "mine");
  config::Config own = cluster_of(authority);
  own.directory = "/srv";
  own.devices = {{.name = "mine", .memory = 1U << 20U, .page = 4096}};
  const Result<config::Config> both = with_cluster(own, text);
  ASSERT_TRUE(both) << both.error().message;
  const config::EngineConfig& here = *both->models[0].engine;
  EXPECT_EQ(here.misfit, "");
  EXPECT_EQ(here.command.front(), "/srv/bin/serve") << "of the host's own folder";
  EXPECT_EQ(here.suspend.back(), spec::SuspendLevel::kStop);
  EXPECT_THAT(both->models[1].engine->misfit, HasSubstr("there is no \"gpu7\"; there are: mine"));
}

}  // namespace
}  // namespace heddle::node
