#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/ids.h"
#include "spec/json.h"

namespace heddle::engine {

/// What llama.cpp says of the next token after a prefix: the likeliest ones.
struct Said {
  std::size_t prefix = 0;
  std::vector<std::pair<std::size_t, double>> likeliest{};  ///< Token, log probability.
};

struct FileGolden {
  std::vector<TokenId> ids{};
  std::vector<Said> of_blocks{};   ///< Of the file as it is, where it rounds inputs of products.
  std::vector<Said> of_numbers{};  ///< Of the same numbers as float32.
};

inline double number_of(const spec::Json& json) {
  const auto* real = json.as<double>();
  return real != nullptr ? *real : static_cast<double>(*json.as<std::int64_t>());
}

inline std::vector<Said> read_said(const spec::Json& json, const char* name) {
  const auto& prefixes = *json.find("prefixes")->as<spec::Json::Array>();
  const auto& likeliest = *json.find(name)->as<spec::Json::Array>();
  std::vector<Said> all;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    Said& said = all.emplace_back();
    said.prefix = static_cast<std::size_t>(*prefixes[i].as<std::int64_t>());
    for (const spec::Json& entry : *likeliest[i].as<spec::Json::Array>()) {
      const auto& pair = *entry.as<spec::Json::Array>();
      said.likeliest.emplace_back(static_cast<std::size_t>(number_of(pair[0])), number_of(pair[1]));
    }
  }
  return all;
}

inline FileGolden read_file_golden(const std::filesystem::path& path) {
  const std::string text = read_text(path, 1U << 20U).value();
  const spec::Json json = spec::parse_json(text, path.string()).value();
  FileGolden golden{.of_blocks = read_said(json, "of_blocks"),
                    .of_numbers = read_said(json, "of_numbers")};
  for (const spec::Json& id : *json.find("ids")->as<spec::Json::Array>()) {
    golden.ids.push_back(static_cast<TokenId>(*id.as<std::int64_t>()));
  }
  return golden;
}

}  // namespace heddle::engine
