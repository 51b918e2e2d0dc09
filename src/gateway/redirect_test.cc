#include "gateway/redirect.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

const HttpAddress kEngine{.host = "127.0.0.1", .port = 9000, .base_path = "/base"};

std::string below(std::string_view location, std::string_view target = "/ui/page?x=1") {
  return redirect_below(kEngine, "far/a b", target, location).value_or("elsewhere");
}

TEST(Redirect, RelativeOnesAreBelowTheEngine) {
  EXPECT_EQ(below("next"), "/upstream/far/a%20b/ui/next");
  EXPECT_EQ(below("next?y=2#z"), "/upstream/far/a%20b/ui/next?y=2#z");
  EXPECT_EQ(below("?y=2"), "/upstream/far/a%20b/ui/page?y=2");
  EXPECT_EQ(below("#z"), "/upstream/far/a%20b/ui/page?x=1#z");
  EXPECT_EQ(below("./"), "/upstream/far/a%20b/ui/");
  EXPECT_EQ(below("../up"), "/upstream/far/a%20b/up");
}

TEST(Redirect, PathsAndAddressesOfTheEngineAreBelowIt) {
  EXPECT_EQ(below("/base/next/"), "/upstream/far/a%20b/next/");
  EXPECT_EQ(below("/base"), "/upstream/far/a%20b");
  EXPECT_EQ(below("http://127.0.0.1:9000/base/next?y"), "/upstream/far/a%20b/next?y");
  EXPECT_EQ(below("HTTP://127.0.0.1:9000/base/"), "/upstream/far/a%20b/");
  EXPECT_EQ(below("//127.0.0.1:9000/base/next"), "/upstream/far/a%20b/next");
  const HttpAddress web{.host = "Engine", .port = 80};
  EXPECT_EQ(redirect_below(web, "m", "/", "http://engine/a"), "/upstream/m/a");
  EXPECT_EQ(redirect_below(web, "m", "/", "http://engine"), "/upstream/m/");
  const HttpAddress v6{.host = "::1", .port = 9000};
  EXPECT_EQ(redirect_below(v6, "m", "/", "http://[::1]:9000/a"), "/upstream/m/a");
}

TEST(Redirect, NoDotsLeaveTheEngine) {
  EXPECT_EQ(below("../../../../../unload"), "/upstream/far/a%20b/unload");
  EXPECT_EQ(below("%2e%2E/%2e./.%2e/unload"), "/upstream/far/a%20b/unload");
  EXPECT_EQ(below("/base/../unload"), "elsewhere");
  EXPECT_EQ(below("/base/a/../../unload"), "elsewhere");
  EXPECT_EQ(below("..."), "/upstream/far/a%20b/ui/...");
}

TEST(Redirect, OtherPlacesAreElsewhere) {
  for (const char* location : {"http://169.254.169.254/latest/meta-data",
                               "http://127.0.0.1:8080/base/",
                               "http://127.0.0.1/base/",
                               "http://127.0.0.1:9000@evil.example/base/",
                               "http://127.0.0.1:9000.evil.example/base/",
                               "https://127.0.0.1:9000/base/",
                               "//evil.example/base/",
                               "/\\evil.example",
                               "\\\\evil.example",
                               "http:evil.example",
                               "http:/evil.example",
                               "file:///etc/passwd",
                               "javascript:alert(1)",
                               "data:text/html,x",
                               "/based/next",
                               "/unload",
                               "/base/a b",
                               "/base/\x01"}) {
    EXPECT_EQ(below(location), "elsewhere") << location;
  }
}

}  // namespace
}  // namespace heddle::gateway
