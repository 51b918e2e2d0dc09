#include <gmock/gmock.h>

#include "base/log.h"
#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

TEST_F(GatewayTest, EventsTellOfModelsAndOfTheLog) {
  config.api_keys = {{.key = "root", .role = config::Role::kAdmin}, {.key = "one"}};
  start();
  EXPECT_EQ(call("GET", "/api/events", "", "Authorization: Bearer one\r\n").status, 403);
  TestClient client(port);
  client.send(TestClient::request("GET", "/api/events", "", "Authorization: Bearer root\r\n"));
  EXPECT_EQ(client.read_head().headers.at("content-type"), "text/event-stream");
  log::warning("a mark of the events", {{"model", "tiny"}});
  std::string text;
  while (text.find("a mark of the events") == std::string::npos) {
    const std::string chunk = client.read_chunk();
    ASSERT_FALSE(chunk.empty());
    text += chunk;
  }
  const std::vector<std::string> events = events_of(text);
  const json first = json::parse(events.at(0));
  EXPECT_EQ(first["type"], "modelStatus");
  const json models = json::parse(first["data"].get<std::string>());
  EXPECT_EQ(models[0]["id"], "tiny");
  EXPECT_EQ(models[0]["state"], "stopped");
  const json last = json::parse(events.back());
  EXPECT_EQ(last["type"], "logData");
  EXPECT_EQ(json::parse(last["data"].get<std::string>())["source"], "upstream");
}

}  // namespace
}  // namespace heddle::gateway
