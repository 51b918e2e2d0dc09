#include "api/rerank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using testing::HasSubstr;

PairsRequest rerank_of(std::string_view body) {
  auto parsed = parse_rerank_request(body);
  EXPECT_TRUE(std::holds_alternative<PairsRequest>(parsed));
  return std::get<PairsRequest>(std::move(parsed));
}

std::string rerank_fault(std::string_view body) {
  const auto parsed = parse_rerank_request(body);
  return std::holds_alternative<ApiError>(parsed) ? std::get<ApiError>(parsed).message : "";
}

std::string score_fault(std::string_view body) {
  const auto parsed = parse_score_request(body);
  return std::holds_alternative<ApiError>(parsed) ? std::get<ApiError>(parsed).message : "";
}

TEST(Rerank, DocumentsAreStringsOrObjectsWithText) {
  const PairsRequest request = rerank_of(
      R"({"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":false,
          "truncate_prompt_tokens":-1})");
  ASSERT_EQ(request.pairs.size(), 2U);
  EXPECT_EQ(request.firsts.at(request.pairs[1].first), "q");
  EXPECT_EQ(request.pairs[1].second, "b");
  EXPECT_EQ(request.pairs[1].param, "documents[1]");
  EXPECT_EQ(request.top_n, 1);
  EXPECT_EQ(request.truncate, -1);
  EXPECT_FALSE(request.return_documents);
}

TEST(Rerank, SaysWhatIsWrong) {
  EXPECT_THAT(rerank_fault(R"({"model":"m","documents":["a"]})"), HasSubstr("query: is missing"));
  EXPECT_THAT(rerank_fault(R"({"model":"m","query":"q"})"), HasSubstr("documents: is missing"));
  EXPECT_THAT(rerank_fault(R"({"model":"m","query":"q","documents":[]})"),
              HasSubstr("want a list of one text or more"));
  EXPECT_THAT(rerank_fault(R"({"model":"m","query":"q","documents":["a",{"body":"b"}]})"),
              HasSubstr("documents[1]: is"));
  EXPECT_THAT(rerank_fault(R"({"model":"m","query":"q","documents":["a"],"top_n":0})"),
              HasSubstr("top_n"));
  EXPECT_THAT(
      rerank_fault(R"({"model":"m","query":"q","documents":["a"],"truncate_prompt_tokens":0})"),
      HasSubstr("truncate_prompt_tokens: is 0"));
  std::string many = R"({"model":"m","query":"q","documents":["a")";
  for (int i = 0; i < 2048; ++i) {
    many += R"(,"a")";
  }
  EXPECT_THAT(rerank_fault(many + "]}"), HasSubstr("documents: are 2049; want at most 2048"));
}

TEST(Rerank, ResultsFallByScoreAndEqualOnesKeepTheirOrder) {
  PairsRequest request = rerank_of(R"({"model":"m","query":"q","documents":["a","b","c","d"]})");
  const std::vector<float> logits{-1.0F, 2.0F, -1.0F, 0.0F};
  const auto all = nlohmann::json::parse(rerank_json("id", request, logits, 9));
  std::vector<int> order;
  for (const auto& result : all["results"]) {
    order.push_back(result["index"]);
  }
  EXPECT_EQ(order, (std::vector{1, 3, 0, 2}));
  EXPECT_EQ(all["results"][1]["relevance_score"], 0.5);
  EXPECT_EQ(all["results"][0]["document"]["text"], "b");
  EXPECT_EQ(all["usage"]["total_tokens"], 9);
  request.top_n = 2;
  request.return_documents = false;
  const auto best = nlohmann::json::parse(rerank_json("id", request, logits, 9));
  ASSERT_EQ(best["results"].size(), 2U);
  EXPECT_FALSE(best["results"][0].contains("document"));
}

TEST(Scores, OneTextAgainstEachOrPairByPair) {
  const auto one = parse_score_request(R"({"model":"m","text_1":"q","text_2":["a","b"]})");
  ASSERT_TRUE(std::holds_alternative<PairsRequest>(one));
  EXPECT_EQ(std::get<PairsRequest>(one).pairs[1].first, 0U);
  EXPECT_EQ(std::get<PairsRequest>(one).pairs[1].param, "text_2[1]");
  const auto each = parse_score_request(R"({"model":"m","text_1":["p","q"],"text_2":["a","b"]})");
  ASSERT_TRUE(std::holds_alternative<PairsRequest>(each));
  EXPECT_EQ(std::get<PairsRequest>(each).pairs[1].first, 1U);
  const auto json =
      nlohmann::json::parse(scores_json("id", 7, std::get<PairsRequest>(each), {0.0F, 1.0F}, 4));
  EXPECT_EQ(json["data"][0]["score"], 0.5);
  EXPECT_EQ(json["data"][1]["index"], 1);
  EXPECT_EQ(json["created"], 7);
  EXPECT_THAT(score_fault(R"({"model":"m","text_1":["p","q"],"text_2":["a"]})"),
              HasSubstr("text_2: are 1; want as many as text_1 has, which are 2"));
  EXPECT_THAT(score_fault(R"({"model":"m","text_1":"p"})"), HasSubstr("text_2: is missing"));
  EXPECT_THAT(score_fault(R"({"model":"m","text_1":"p","text_2":[]})"), HasSubstr("text_2: is"));
}

}  // namespace
}  // namespace heddle::api
