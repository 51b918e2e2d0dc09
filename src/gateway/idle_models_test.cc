#include "gateway/idle_models.h"

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ExpiredModels, AreThoseThatNobodyUsedForTheirTtl) {
  boost::asio::io_context loop;
  TextPool pool(loop, 1);
  Catalog catalog(loop, pool, nullptr);
  core::ModelStatus status{.id = ModelId(1), .name = "a", .last_used = Instant(100s)};
  status.residency = core::Residency::kServing;
  config::ModelConfig config{.id = "a", .path = "x", .ttl = 10s};
  const auto expired = [&](Instant now) {
    catalog.assign({config}, {status});
    return expired_models({status}, catalog, now);
  };
  EXPECT_THAT(expired(Instant(109s)), IsEmpty());
  EXPECT_THAT(expired(Instant(110s)), ElementsAre(ModelId(1)));
  status.requests_waiting = 1;
  EXPECT_THAT(expired(Instant(200s)), IsEmpty());
  status.requests_waiting = 0;
  status.residency = core::Residency::kLoading;
  EXPECT_THAT(expired(Instant(200s)), IsEmpty());
  status.residency = core::Residency::kServing;
  config.pin = true;
  EXPECT_THAT(expired(Instant(200s)), IsEmpty());
  config.pin = false;
  config.ttl = 0s;
  EXPECT_THAT(expired(Instant(200s)), IsEmpty()) << "0 means never";
}

TEST_F(GatewayTest, AnIdleModelIsUnloaded) {
  config.models[0].ttl = 1ns;
  serving.residency[ModelId(1)] = core::Residency::kServing;
  start();
  EXPECT_TRUE(serving.wait([&] { return serving.unloaded.contains(ModelId(1)); }));
}

}  // namespace
}  // namespace heddle::gateway
