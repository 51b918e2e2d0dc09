#include "gateway/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

const std::vector<Route> kRoutes{{"GET", "/v1/models"},
                                 {"GET", "/v1/models/{id}"},
                                 {"POST", "/v1/chat/completions"},
                                 {"POST", "/api/models/unload"},
                                 {"POST", "/api/models/unload/{id}"}};

TEST(Router, FindsPathsAndIdsWithSlashesAndColons) {
  const auto match = [](std::string_view method, std::string_view path) {
    return std::get<Match>(match_route(kRoutes, method, path));
  };
  EXPECT_EQ(match("GET", "/v1/models").route, 0U);
  EXPECT_EQ(match("GET", "/v1/models/a/b:c").id, "a/b:c");
  EXPECT_EQ(match("GET", "/v1/models/a%2Fb%3Ac").id, "a/b:c");
  EXPECT_EQ(match("POST", "/api/models/unload").route, 3U);
  EXPECT_EQ(match("POST", "/api/models/unload/x").id, "x");
}

TEST(Router, AnUnknownPathIsToldTheKnownOnes) {
  const auto no = std::get<NoMatch>(match_route(kRoutes, "GET", "/v1/nothing"));
  EXPECT_EQ(no.error.status, 404);
  EXPECT_THAT(no.error.message, HasSubstr("GET / tells what there is"));
  const auto near = std::get<NoMatch>(match_route(kRoutes, "GET", "/v1/modls"));
  EXPECT_EQ(near.error.message,
            "GET /v1/modls does not exist; near it are /v1/models; GET / tells what there is");
  EXPECT_EQ(std::get<NoMatch>(match_route(kRoutes, "GET", "/v1/models/")).error.status, 404);
  EXPECT_EQ(std::get<NoMatch>(match_route(kRoutes, "GET", "")).error.status, 404);
}

TEST(Router, PathsThatAreMeantAreFound) {
  EXPECT_EQ(meant_path(kRoutes, "GET", "/v1/models"), "") << "it fits as it is";
  EXPECT_EQ(meant_path(kRoutes, "GET", "/v1/models/"), "/v1/models");
  EXPECT_EQ(meant_path(kRoutes, "POST", "/v1/chat/completions//"), "/v1/chat/completions");
  EXPECT_EQ(meant_path(kRoutes, "POST", "/chat/completions"), "/v1/chat/completions");
  EXPECT_EQ(meant_path(kRoutes, "POST", "/chat/completions/"), "/v1/chat/completions");
  EXPECT_EQ(meant_path(kRoutes, "GET", "/models/a/b"), "/v1/models/a/b");
  EXPECT_EQ(meant_path(kRoutes, "POST", "/api/models/unload/"), "") << "it would unload all";
  EXPECT_EQ(meant_path(kRoutes, "GET", "/api/models/unload"), "") << "another method is right";
  EXPECT_EQ(meant_path(kRoutes, "GET", "/"), "");
  EXPECT_EQ(meant_path(kRoutes, "GET", "/nothing"), "");
}

TEST(Router, AWrongMethodIsToldTheRightOnes) {
  const auto no = std::get<NoMatch>(match_route(kRoutes, "GET", "/v1/chat/completions"));
  EXPECT_EQ(no.error.status, 405);
  EXPECT_EQ(no.allow, "POST, OPTIONS");
  EXPECT_EQ(allowed_methods(kRoutes, "/v1/models"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(allowed_methods(kRoutes, "/x"), "");
}

}  // namespace
}  // namespace heddle::gateway
