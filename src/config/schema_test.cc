#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/test_places.h"
#include "config/config.h"

namespace heddle::config {
namespace {

TEST(Schema, TheFileThatIsShippedIsTheOneThatIsGenerated) {
  std::ifstream file(places::source("schema/heddle.schema.json"));
  std::ostringstream shipped;
  shipped << file.rdbuf();
  EXPECT_EQ(shipped.str(), config_schema())
      << "write it anew: heddle config schema > schema/heddle.schema.json";
}

TEST(Schema, NamesTheKeysWithTheirTypesAndWhatIsRequired) {
  const auto schema = nlohmann::json::parse(config_schema());
  const auto& model = schema["properties"]["models"]["additionalProperties"];
  EXPECT_EQ(model["additionalProperties"], false);
  EXPECT_EQ(model["anyOf"][0]["required"], nlohmann::json::array({"path"}));
  EXPECT_EQ(model["anyOf"].size(), 5U);
  EXPECT_EQ(model["properties"]["pin"]["$ref"], "#/$defs/flag");
  EXPECT_EQ(model["properties"]["dtype"]["default"], "stored");
  EXPECT_EQ(model["properties"]["cmd"]["$ref"], "#/$defs/texts");
  EXPECT_TRUE(schema["properties"].contains("captureBuffer")) << "known, though without effect";
  EXPECT_TRUE(schema["$defs"].contains("bytes"));
}

}  // namespace
}  // namespace heddle::config
