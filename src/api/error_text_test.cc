#include "api/error_text.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

const ApiError kMissing{.status = 404, .message = "no \"x\"", .type = "t", .code = "c"};

TEST(ErrorText, IsOpenAisExceptUnderMessages) {
  EXPECT_EQ(error_text(kMissing, "/v1/chat/completions"), to_json(kMissing));
  EXPECT_EQ(error_text(kMissing, "/v1/messages_of_others"), to_json(kMissing));
  const std::string anthropic =
      R"({"type":"error","error":{"type":"not_found_error","message":"no \"x\""}})";
  EXPECT_EQ(error_text(kMissing, "/v1/messages"), anthropic);
  EXPECT_EQ(error_text(kMissing, "/v1/messages/count_tokens"), anthropic);
  EXPECT_EQ(error_text(kMissing, "/upstream/far/away/v1/messages"), anthropic);
}

TEST(ErrorText, TellsAnthropicsClientsTheRequest) {
  EXPECT_EQ(error_text(kMissing, "/v1/messages", "r1"),
            R"({"type":"error","error":{"type":"not_found_error","message":"no \"x\""},)"
            R"("request_id":"r1"})");
  EXPECT_EQ(error_text(kMissing, "/v1/models", "r1"), to_json(kMissing));
}

TEST(ErrorText, IsAMessageForOllamasClients) {
  EXPECT_EQ(error_text(kMissing, "/api/chat"), R"({"error":"no \"x\""})");
  EXPECT_EQ(error_events(kMissing, "/api/pull"), "{\"error\":\"no \\\"x\\\"\"}\n");
  EXPECT_EQ(form_of("/api/blobs/sha256:1"), ApiForm::kOllama);
  EXPECT_EQ(form_of("/api/requests"), ApiForm::kOpenAi);
}

TEST(ErrorText, OnlyAnthropicsClientsKnowOverload) {
  EXPECT_EQ(error_status({.status = 503}, "/v1/messages"), 529);
  EXPECT_EQ(error_status({.status = 503}, "/v1/chat/completions"), 503);
  EXPECT_EQ(error_status({.status = 429}, "/v1/messages"), 429);
}

TEST(ErrorText, HasAnthropicsTypeOfTheStatus) {
  const auto type = [](int status) {
    const std::string text = error_text({.status = status}, "/v1/messages");
    const std::size_t begin = text.find("\"error\":{\"type\":\"") + 17;
    return text.substr(begin, text.find('"', begin) - begin);
  };
  EXPECT_EQ(type(400), "invalid_request_error");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(403), "permission_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(429), "rate_limit_error");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
  EXPECT_EQ(type(529), "overloaded_error");
  EXPECT_EQ(type(504), "timeout_error");
}

TEST(ErrorText, EndsAStream) {
  EXPECT_EQ(error_events(kMissing, "/v1/chat/completions"),
            "data: " + to_json(kMissing) + "\n\ndata: [DONE]\n\n");
  EXPECT_EQ(error_events(kMissing, "/v1/messages"),
            "event: error\ndata: " + error_text(kMissing, "/v1/messages") + "\n\n");
}

}  // namespace
}  // namespace heddle::api
