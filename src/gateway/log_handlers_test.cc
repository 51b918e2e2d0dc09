#include <gmock/gmock.h>

#include "base/log.h"
#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class LogHandlersTest : public GatewayTest {
 protected:
  /// What a stream brings until `wanted` has come, or until its end.
  static std::string read_until(TestClient& client, const std::string& wanted) {
    std::string text;
    while (text.find(wanted) == std::string::npos) {
      const std::string chunk = client.read_chunk();
      if (chunk.empty()) {
        break;
      }
      text += chunk;
    }
    return text;
  }
};

TEST_F(LogHandlersTest, TheLastLinesArePlainText) {
  start();
  log::warning("a mark of this test", {{"n", 71}});
  const TestResponse response = call("GET", "/logs");
  EXPECT_EQ(response.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_THAT(response.body, EndsWith("a mark of this test n=71\n"));
}

TEST_F(LogHandlersTest, AStreamGoesOnUntilTheServerEnds) {
  start();
  log::warning("before");
  TestClient client(port);
  client.send(TestClient::request("GET", "/logs/stream?no-history"));
  EXPECT_EQ(client.read_head().headers.at("content-type"), "text/plain; charset=utf-8");
  log::warning("line 1");
  log::warning("line 2");
  EXPECT_THAT(read_until(client, "line 2"), AllOf(HasSubstr("line 1\n"), Not(HasSubstr("before"))));
  on_loop([this] { gateway->drain(std::chrono::seconds(5), [] {}); });
  EXPECT_THAT(read_until(client, "never written"), Not(HasSubstr("line")));
}

TEST_F(LogHandlersTest, LinesOfAModelAsEvents) {
  start();
  log::warning("of another", {{"model", "org/name:8b"}});
  log::warning("of none");
  log::warning("of tiny", {{"model", "tiny"}});
  TestClient client(port);
  client.send(
      TestClient::request("GET", "/logs/stream/alias", "", "Accept: text/event-stream\r\n"));
  EXPECT_EQ(client.read_head().headers.at("content-type"), "text/event-stream");
  const std::string text = read_until(client, "of tiny");
  EXPECT_THAT(text, HasSubstr("data: 20"));
  EXPECT_THAT(text, Not(HasSubstr("of another")));
  EXPECT_THAT(text, Not(HasSubstr("of none")));
  EXPECT_EQ(call("GET", "/logs/stream/nobody").status, 404);
}

TEST_F(LogHandlersTest, LinesOfTheServerAndOfModelsAreToldApart) {
  start();
  log::warning("ours alone");
  log::warning("of a model", {{"model", "tiny"}});
  log::warning("ours again");
  TestClient proxy(port);
  proxy.send(TestClient::request("GET", "/logs/stream/proxy"));
  EXPECT_EQ(proxy.read_head().status, 200);
  const std::string ours = read_until(proxy, "ours again");
  EXPECT_THAT(ours, AllOf(HasSubstr("ours alone"), Not(HasSubstr("of a model"))));
  TestClient upstream(port);
  upstream.send(TestClient::request("GET", "/logs/stream/upstream"));
  EXPECT_EQ(upstream.read_head().status, 200);
  EXPECT_THAT(read_until(upstream, "of a model"), Not(HasSubstr("ours")));
}

}  // namespace
}  // namespace heddle::gateway
