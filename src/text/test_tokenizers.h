#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "text/tokenizer.h"

namespace heddle::text {

/// tokenizer.json of one of the small tokenizers that tests/text/make_goldens.py trained.
inline std::string golden_tokenizer_json(const std::string& name) {
  const std::string path = places::source("tests/text/goldens/" + name + "/tokenizer.json");
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::open(golden_tokenizer_json(name));
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

}  // namespace heddle::text
