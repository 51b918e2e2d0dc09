#include "gateway/status_server.h"

#include <future>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_client.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

TEST(StatusServer, TellsItsMetricsAndWhetherSomethingIsWrong) {
  boost::asio::io_context loop{1};
  Metrics metrics;
  metrics.set("heddle_test_value", "A number.", {}, 7);
  std::vector<std::string> troubles;
  auto server = StatusServer::listen(
      loop, {.host = "127.0.0.1", .port = 0}, metrics, [&] { return troubles; });
  ASSERT_TRUE(server) << server.error().message;
  TestClient client((*server)->address().port);
  const auto call = [&](const char* method, const char* path) {
    std::promise<TestResponse> answered;
    std::future<TestResponse> answer = answered.get_future();
    std::thread caller([&] { answered.set_value(client.call(method, path)); });
    while (answer.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
      loop.restart();
      loop.run_for(std::chrono::milliseconds(2));
    }
    caller.join();
    return answer.get();
  };
  EXPECT_THAT(call("GET", "/metrics").body, HasSubstr("heddle_test_value 7"));
  EXPECT_EQ(call("GET", "/healthz").status, 200);
  EXPECT_EQ(call("GET", "/readyz").status, 200);
  troubles = {"no manager leads", "cpu0 is down"};
  const auto unready = call("GET", "/readyz");
  EXPECT_EQ(unready.status, 503);
  EXPECT_THAT(unready.body, HasSubstr("no manager leads; cpu0 is down"));
  EXPECT_EQ(call("GET", "/healthz").status, 200) << "it lives";
  EXPECT_EQ(call("POST", "/metrics").status, 405);
  EXPECT_EQ(call("GET", "/v1/models").status, 404);
  server->reset();
  loop.restart();
  loop.run_for(std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace heddle::gateway
