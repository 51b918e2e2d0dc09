#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

class HostHandlers : public GatewayTest {
 protected:
  HostHandlers() {
    serving.host_entries = {{.id = HostId(0),
                             .name = "h0",
                             .address = "10.0.0.2:7701",
                             .presence = core::HostPresence::kLeaving,
                             .since = steady_now() - std::chrono::seconds(3),
                             .build = "1.2",
                             .isa = "avx2"},
                            {.id = HostId(2), .name = "h2", .trouble = "connection refused"}};
  }
};

TEST_F(HostHandlers, HostsAreListedWithWhatRunsThere) {
  start();
  const nlohmann::json hosts = ask("GET", "/api/hosts")["hosts"];
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0]["name"], "h0");
  EXPECT_EQ(hosts[0]["address"], "10.0.0.2:7701");
  EXPECT_EQ(hosts[0]["state"], "leaving");
  EXPECT_GE(hosts[0]["since_ms"], 3000);
  EXPECT_EQ(hosts[0]["version"], "1.2");
  EXPECT_EQ(hosts[0]["isa"], "avx2");
  EXPECT_TRUE(hosts[0]["trouble"].is_null());
  EXPECT_EQ(hosts[0]["devices"], nlohmann::json::parse(R"(["cpu0"])"));
  EXPECT_EQ(hosts[0]["models"], nlohmann::json::parse(R"(["tiny"])"));
  EXPECT_EQ(hosts[0]["requests_running"], 2);
  EXPECT_EQ(hosts[0]["bytes"], 100 * 65536);
  EXPECT_EQ(hosts[0]["bytes_free"], 60 * 65536);
  EXPECT_EQ(hosts[1]["state"], "away");
  EXPECT_TRUE(hosts[1]["since_ms"].is_null());
  EXPECT_EQ(hosts[1]["trouble"], "connection refused");
  EXPECT_TRUE(hosts[1]["devices"].empty());
}

TEST_F(HostHandlers, AHostIsDrainedAndStaysAfterAll) {
  start();
  EXPECT_EQ(call("POST", "/api/hosts/drain", R"({"host":"h2"})").status, 200);
  on_loop([&] { EXPECT_EQ(serving.left, (std::set{HostId(2)})); });
  EXPECT_EQ(call("POST", "/api/hosts/undrain", R"({"host":"h2"})").status, 200);
  on_loop([&] { EXPECT_TRUE(serving.left.empty()); });
}

TEST_F(HostHandlers, AHostThatIsNotThereIsNamedWithThoseThatAre) {
  start();
  const auto answer = call("POST", "/api/hosts/drain", R"({"host":"h9"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(answer.body, HasSubstr("h0, h2"));
  EXPECT_EQ(call("POST", "/api/hosts/drain", "{}").status, 400);
}

TEST_F(HostHandlers, WhyAHostCannotLeaveIsSaid) {
  serving.leave_failure = Error{.code = Code::kFailedPrecondition, .message = "h2 is away"};
  start();
  const auto answer = call("POST", "/api/hosts/drain", R"({"host":"h2"})");
  EXPECT_GE(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("h2 is away"));
}

TEST_F(HostHandlers, AConfigurationIsAppliedOrRefusedWithItsProblems) {
  start();
  EXPECT_EQ(call("POST", "/api/configuration", R"({"configuration":"models:"})").status, 200);
  on_loop([this] {
    EXPECT_THAT(serving.applied, testing::ElementsAre(testing::Pair("models:", false)));
    serving.apply_failure = Error{Code::kInvalidArgument, "heddle.yaml:3: models.a: no path"};
  });
  const auto answer = call("POST", "/api/configuration", R"({"configuration":"x","dry_run":true})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("models.a: no path"));
  on_loop([this] { EXPECT_TRUE(serving.applied.back().second); });
  EXPECT_EQ(call("POST", "/api/configuration", "{}").status, 400);
}

}  // namespace
}  // namespace heddle::gateway
