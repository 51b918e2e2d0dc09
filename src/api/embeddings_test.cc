#include "api/embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

TEST(Embeddings, TakesTextsAndTokens) {
  using Ids = std::vector<TokenId>;
  const auto inputs = [](const std::string& input) {
    return std::get<EmbeddingRequest>(
               parse_embedding_request(R"({"model":"m","input":)" + input + "}"))
        .inputs;
  };
  EXPECT_THAT(inputs("\"x\""), ElementsAre(Prompt("x")));
  EXPECT_THAT(inputs(R"(["x","y"])"), ElementsAre(Prompt("x"), Prompt("y")));
  EXPECT_THAT(inputs("[[1],[2,3]]"), ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
}

TEST(Embeddings, WhatIsWrongIsNamed) {
  const auto param = [](const std::string& body) {
    return std::get<ApiError>(parse_embedding_request(body)).param;
  };
  EXPECT_EQ(param(R"({"model":"m"})"), "input");
  EXPECT_EQ(param(R"({"model":"m","input":[]})"), "input");
  EXPECT_EQ(param(R"({"model":"m","input":"x","encoding_format":"int8"})"), "encoding_format");
  EXPECT_EQ(param(R"({"model":"m","input":"x","dimensions":0})"), "dimensions");
}

TEST(Embeddings, AreOfLengthOneAfterTheyWereCut) {
  std::vector<float> embedding{3, 4, 12};
  cut(embedding, 2);
  normalise(embedding);
  EXPECT_THAT(embedding, ElementsAre(FloatEq(0.6F), FloatEq(0.8F)));
  std::vector<float> zeros{0, 0};
  cut(zeros, std::nullopt);
  normalise(zeros);
  EXPECT_THAT(zeros, ElementsAre(0, 0));
}

TEST(Embeddings, AsNumbersAndAsTheirBytes) {
  const std::vector<std::vector<float>> embeddings{{1.0F, -2.5F}, {0.0F, 0.5F}};
  const auto numbers = nlohmann::json::parse(embeddings_json("m", embeddings, 7, false));
  EXPECT_EQ(numbers["data"][0]["embedding"], nlohmann::json({1.0, -2.5}));
  EXPECT_EQ(numbers["data"][1]["index"], 1);
  EXPECT_EQ(numbers["usage"]["total_tokens"], 7);
  const auto bytes = nlohmann::json::parse(embeddings_json("m", embeddings, 7, true));
  EXPECT_EQ(bytes["data"][0]["embedding"], "AACAPwAAIMA=");
}

}  // namespace
}  // namespace heddle::api
