#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Of a gateway whose server loads whatever it is asked for, unless it has an answer.
class AdapterHandlersTest : public GatewayTest {
 protected:
  void serve_adapters() {
    options.adapters.load = [this](api::LoadAdapterRequest request, auto done) {
      asked.push_back(std::move(request));
      done(answer);
    };
    options.adapters.unload = [this](const std::string& name, auto done) {
      unloaded.push_back(name);
      done(answer);
    };
    start();
  }

  Result<void> answer{};
  std::vector<api::LoadAdapterRequest> asked{};
  std::vector<std::string> unloaded{};
};

TEST_F(AdapterHandlersTest, TheServerHearsWhatIsAskedAndVllmsClientsTheirWords) {
  serve_adapters();
  const auto loaded = call("POST",
                           "/v1/load_lora_adapter",
                           R"({"lora_name":"sql","lora_path":"/a/sql","load_inplace":true})");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'sql' added successfully.");
  const auto gone = call("POST", "/v1/unload_lora_adapter", R"({"lora_name":"sql"})");
  EXPECT_EQ(gone.status, 200);
  EXPECT_EQ(gone.body, "Success: LoRA adapter 'sql' removed successfully.");
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].path, "/a/sql");
  EXPECT_TRUE(asked[0].in_place);
  EXPECT_EQ(unloaded, std::vector<std::string>{"sql"});
}

TEST_F(AdapterHandlersTest, ErrorsHaveTheirStatus) {
  serve_adapters();
  const std::string body = R"({"lora_name":"sql","lora_path":"sql"})";
  for (const auto& [code, status] :
       {std::pair(Code::kInvalidArgument, 400), std::pair(Code::kNotFound, 404)}) {
    answer = Error{code, "lora_name: words"};
    for (const char* const path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
      const auto said = call("POST", path, body);
      EXPECT_EQ(said.status, status) << path;
      EXPECT_THAT(said.body, HasSubstr("lora_name: words"));
    }
  }
}

TEST_F(AdapterHandlersTest, BodiesThatAreWrongReachNobody) {
  serve_adapters();
  for (const char* const path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    for (const char* const body : {"{}", "[]", R"({"lora_name":7,"lora_path":"x"})", ""}) {
      EXPECT_EQ(call("POST", path, body).status, 400) << path << body;
    }
  }
  EXPECT_TRUE(asked.empty());
  EXPECT_TRUE(unloaded.empty());
}

TEST_F(AdapterHandlersTest, InAClusterNobodyDoesIt) {
  start();
  const auto said =
      call("POST", "/v1/load_lora_adapter", R"({"lora_name":"sql","lora_path":"sql"})");
  EXPECT_EQ(said.status, 501);
  EXPECT_THAT(json::parse(said.body)["error"]["message"].get<std::string>(),
              HasSubstr("heddle apply"));
  EXPECT_EQ(call("POST", "/v1/unload_lora_adapter", R"({"lora_name":"sql"})").status, 501);
}

TEST_F(AdapterHandlersTest, KeysNeedTheRoleAdmin) {
  config.api_keys = {{.key = "ask"},
                     {.key = "scrape", .role = config::Role::kMetrics},
                     {.key = "rule", .role = config::Role::kAdmin}};
  serve_adapters();
  const std::string body = R"({"lora_name":"sql","lora_path":"sql"})";
  for (const char* const path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    EXPECT_EQ(call("POST", path, body).status, 401) << path;
    EXPECT_EQ(call("POST", path, body, "Authorization: Bearer ask\r\n").status, 403) << path;
    EXPECT_EQ(call("POST", path, body, "Authorization: Bearer scrape\r\n").status, 403) << path;
  }
  EXPECT_TRUE(asked.empty() && unloaded.empty());
  EXPECT_EQ(call("POST", "/v1/load_lora_adapter", body, "Authorization: Bearer rule\r\n").status,
            200);
}

}  // namespace
}  // namespace heddle::gateway
