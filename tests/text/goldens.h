#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::text {

using Json = nlohmann::ordered_json;

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Json read_golden(const std::filesystem::path& path) {
  Json json =
      Json::parse(read_text(std::filesystem::path(HEDDLE_GOLDENS_DIR) / path), nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path;
  return json;
}

}  // namespace heddle::text
