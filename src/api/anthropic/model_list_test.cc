#include "api/anthropic/model_list.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

std::vector<ModelObject> three_models() {
  return {{.id = "a", .created = 5, .name = "A", .context_length = 64}, {.id = "b"}, {.id = "c"}};
}

std::string ids_on(const ListPage& page) {
  const json list = json::parse(anthropic_model_list_json(three_models(), page));
  std::string all;
  for (const json& model : list["data"]) {
    all += model["id"].get<std::string>();
  }
  return all + (list["has_more"].get<bool>() ? "+" : "");
}

TEST(AnthropicModels, AreListed) {
  const json list = json::parse(anthropic_model_list_json(three_models(), {}));
  EXPECT_EQ(list["data"][0], json::parse(R"({"type":"model","id":"a","display_name":"A",
      "created_at":"1970-01-01T00:00:05Z","lifecycle":"active","max_input_tokens":64})"));
  EXPECT_EQ(list["data"][1]["display_name"], "b");
  EXPECT_EQ(list["first_id"], "a");
  EXPECT_EQ(list["last_id"], "c");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(json::parse(anthropic_model_json(three_models()[0])), list["data"][0]);
}

TEST(AnthropicModels, ComeInPages) {
  EXPECT_EQ(ids_on({.limit = 2}), "ab+");
  EXPECT_EQ(ids_on({.limit = 2, .after_id = "b"}), "c");
  EXPECT_EQ(ids_on({.limit = 1, .before_id = "c"}), "b+");
  EXPECT_EQ(ids_on({.after_id = "c"}), "");
  EXPECT_EQ(ids_on({.after_id = "c", .before_id = "a"}), "");
  EXPECT_EQ(json::parse(anthropic_model_list_json({}, {}))["first_id"], nullptr);
}

}  // namespace
}  // namespace heddle::api
