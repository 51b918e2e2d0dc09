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
  catalog.find(ModelId(1))->keep_alive = 0s;
  EXPECT_THAT(expired(Instant(100s)), ElementsAre(ModelId(1))) << "to a request it means now";
  config.ttl = 10s;
  catalog.find(ModelId(1))->keep_alive = Duration::max();
  EXPECT_THAT(expired(Instant(200s)), IsEmpty());
  catalog.find(ModelId(1))->keep_alive = 30s;
  EXPECT_THAT(expired(Instant(129s)), IsEmpty());
  EXPECT_THAT(expired(Instant(130s)), ElementsAre(ModelId(1)));
}

TEST_F(GatewayTest, ARequestSaysHowLongItsModelStays) {
  serving.reply = "x";
  serving.residency[ModelId(1)] = core::Residency::kServing;
  start();
  (void)ask("POST", "/v1/chat/completions", chat_body(R"("keep_alive":"1h")"));
  EXPECT_EQ(ask("GET", "/running")["running"][0]["ttl"], 3600);
  (void)ask("POST", "/v1/embeddings", R"({"model":"tiny","input":"a","keep_alive":0})");
  EXPECT_TRUE(serving.wait([&] { return serving.unloaded.contains(ModelId(1)); }));
}

TEST_F(GatewayTest, AnIdleModelIsUnloaded) {
  config.models[0].ttl = 1ns;
  serving.residency[ModelId(1)] = core::Residency::kServing;
  start();
  EXPECT_TRUE(serving.wait([&] { return serving.unloaded.contains(ModelId(1)); }));
}

}  // namespace
}  // namespace heddle::gateway
