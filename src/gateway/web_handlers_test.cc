#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;
using testing::Not;

class WebHandlersTest : public GatewayTest {};

TEST_F(WebHandlersTest, ThePageAndWhatItIsMadeOf) {
  start();
  const TestResponse page = call("GET", "/ui/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("script-src 'self'"));
  EXPECT_THAT(page.body, HasSubstr("src=\"main.mjs\""));
  EXPECT_EQ(call("GET", "/ui/index.html").body, page.body);
  const TestResponse script = call("GET", "/ui/main.mjs");
  EXPECT_EQ(script.headers.at("content-type"), "text/javascript; charset=utf-8");
  EXPECT_THAT(script.body, HasSubstr("import"));
  EXPECT_EQ(call("GET", "/ui/style.css").headers.at("content-type"), "text/css; charset=utf-8");
  EXPECT_EQ(call("GET", "/ui/icon.svg").headers.at("content-type"), "image/svg+xml");
  EXPECT_EQ(call("GET", "/ui/other").status, 404);
}

TEST_F(WebHandlersTest, BrowsersAreSentToThePageAndTerminalsAreNot) {
  start();
  const std::string asks = TestClient::request("GET", "/", "", "Accept: text/html,*/*\r\n");
  TestClient browser(port);
  browser.send(asks);
  const TestResponse sent = browser.read_head();
  EXPECT_EQ(sent.status, 303);
  EXPECT_EQ(sent.headers.at("location"), "ui/");
  EXPECT_EQ(call("GET", "/ui").headers.at("location"), "ui/");
  EXPECT_THAT(call("GET", "/").body, HasSubstr("/ui/"));
}

TEST_F(WebHandlersTest, ThePageWantsNoKeyAndTellsNothing) {
  config.api_keys = {{.key = "secret"}};
  start();
  EXPECT_EQ(call("GET", "/ui/").status, 200);
  EXPECT_EQ(call("GET", "/ui/main.mjs").status, 200);
  EXPECT_EQ(call("GET", "/api/devices").status, 401);
  const TestResponse index = call("GET", "/");
  EXPECT_EQ(index.status, 200);
  EXPECT_THAT(index.body, Not(HasSubstr("tiny")));
  EXPECT_THAT(index.body, Not(HasSubstr("cpu0")));
}

}  // namespace
}  // namespace heddle::gateway
