#include "host/configured_host.h"

#include <gtest/gtest.h>

namespace heddle::host {
namespace {

constexpr std::uint64_t kTinyPage = std::uint64_t{64} << 10U;

TEST(ConfiguredHost, AReloadCannotChangeWhatMemoryThereIs) {
  config::Config before;
  before.host.memory = 10 * kTinyPage;
  before.devices = {{.name = "cpu0", .cores = {0}, .memory = 4 * kTinyPage, .page = kTinyPage}};
  config::Config models = before;
  models.models.push_back({.id = "new"});
  EXPECT_TRUE(check_reload(before, models));
  config::Config devices = before;
  devices.devices[0].cores = {0, 1};
  EXPECT_EQ(check_reload(before, devices).error().code, Code::kFailedPrecondition);
  config::Config host = before;
  host.host.memory += kTinyPage;
  EXPECT_EQ(check_reload(before, host).error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace heddle::host
