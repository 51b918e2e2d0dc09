#include <cmath>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class RerankTest : public GatewayTest {
 protected:
  /// The message of a request's error, whose status is 400.
  [[nodiscard]] std::string fault(const std::string& path, const std::string& body) const {
    const TestResponse answer = call("POST", path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return json::parse(answer.body)["error"]["message"];
  }

  static constexpr const char* kRerank =
      R"({"model":"tiny","query":"ab","documents":["c",{"text":"def"}]})";
};

TEST_F(RerankTest, PairsGoThroughTheModelWhole) {
  model.make_encoder(/*scores=*/true);
  start();
  const json answer = ask("POST", "/v1/rerank", kRerank);
  ASSERT_EQ(answer["results"].size(), 2U) << answer.dump();
  EXPECT_EQ(answer["results"][0]["index"], 0);
  EXPECT_EQ(answer["results"][1]["document"]["text"], "def");
  // What FakeServing gives for each is 3.
  EXPECT_NEAR(answer["results"][0]["relevance_score"], 1 / (1 + std::exp(-3.0)), 1e-9);
  EXPECT_EQ(answer["usage"]["total_tokens"], 6 + 8);
  EXPECT_TRUE(std::string(answer["id"]).starts_with("rerank-"));
  const auto& record = *serving.started.at(1);
  EXPECT_EQ(record.prompt, (std::vector<TokenId>{1, 'a', 'b', 2, 'd', 'e', 'f', 2}));
  const spec::SamplingParams& params = record.choices.at(0);
  EXPECT_EQ(params.pooling, spec::Pooling::kFirst);
  EXPECT_TRUE(params.in_one_pass);
  EXPECT_EQ(params.second_text, 4);
}

TEST_F(RerankTest, EveryPathAnswers) {
  model.make_encoder(/*scores=*/true);
  start();
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"}) {
    EXPECT_EQ(ask("POST", path, kRerank)["results"].size(), 2U) << path;
  }
  for (const char* path : {"/v1/score", "/score"}) {
    const json answer =
        ask("POST", path, R"({"model":"tiny","text_1":"a","text_2":["b","c","d"]})");
    EXPECT_EQ(answer["data"].size(), 3U) << path;
    EXPECT_EQ(answer["data"][2]["index"], 2);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 15);
  }
}

TEST_F(RerankTest, SaysWhatIsWrong) {
  model.make_encoder(/*scores=*/true);
  start();
  const std::string longer(60, 'x');
  EXPECT_THAT(fault("/v1/rerank", R"({"model":"tiny","query":"q","documents":[]})"),
              HasSubstr("documents: is"));
  EXPECT_THAT(
      fault("/v1/rerank", R"({"model":"tiny","query":"q","documents":["a",")" + longer + "\"]}"),
      HasSubstr("documents[1]: is 64 tokens long with its query"));
  EXPECT_EQ(call("POST",
                 "/v1/rerank",
                 R"({"model":"tiny","query":"q","truncate_prompt_tokens":-1,"documents":["a",")" +
                     longer + "\"]}")
                .status,
            200);
  EXPECT_EQ(serving.started.at(1)->prompt.size(), 40U);
  EXPECT_THAT(
      fault("/v1/rerank",
            R"({"model":"tiny","query":"q","truncate_prompt_tokens":41,"documents":["a"]})"),
      HasSubstr("truncate_prompt_tokens: is 41, but the model takes at most 40"));
  EXPECT_THAT(fault("/v1/embeddings", R"({"model":"tiny","input":"a"})"),
              HasSubstr("scores pairs of texts: ask it by /v1/rerank or /v1/score"));
  EXPECT_THAT(fault("/v1/chat/completions", chat_body()), HasSubstr("it generates nothing"));
}

TEST_F(RerankTest, OtherModelsDoNotScore) {
  start();
  EXPECT_THAT(fault("/v1/rerank", kRerank),
              HasSubstr("\"tiny\" generates text; want a model that scores pairs of texts"));
  EXPECT_THAT(fault("/v1/score", R"({"model":"tiny","text_1":"a","text_2":"b"})"),
              HasSubstr("want a model that scores pairs of texts"));
}

TEST_F(RerankTest, AnEncoderMakesVectorsAndNothingElse) {
  model.make_encoder(/*scores=*/false);
  model.write("modules.json", R"([{"type":"x.Transformer"},{"type":"x.Pooling"}])");
  start();
  const json answer = ask("POST", "/v1/embeddings", R"({"model":"tiny","input":["ab","c"]})");
  EXPECT_EQ(answer["data"][0]["embedding"], json({3.0, 4.0, 4.0})) << "no module normalises";
  const spec::SamplingParams& params = serving.started.at(0)->choices.at(0);
  EXPECT_EQ(params.pooling, spec::Pooling::kMean);
  EXPECT_TRUE(params.in_one_pass);
  EXPECT_THAT(fault("/v1/rerank", kRerank), HasSubstr("makes vectors of texts"));
  for (const auto& [path, text] : std::map<std::string, std::string>{
           {"/v1/chat/completions", R"("messages":[{"role":"user","content":"a"}])"},
           {"/v1/completions", R"("prompt":"a")"},
           {"/v1/responses", R"("input":"a")"}}) {
    EXPECT_THAT(fault(path, R"({"model":"tiny",)" + text + "}"),
                HasSubstr("makes vectors of texts: ask it by /v1/embeddings; it generates nothing"))
        << path;
  }
}

TEST_F(RerankTest, TextsOfAnEncoderMayFillItAndAreCutWhereThatIsAsked) {
  model.make_encoder(/*scores=*/false);
  start();
  const auto body = [](std::size_t letters, const std::string& more) {
    return R"({"model":"tiny","input":")" + std::string(letters, 'x') + "\"" + more + "}";
  };
  EXPECT_EQ(call("POST", "/v1/embeddings", body(38, "")).status, 200);
  EXPECT_EQ(serving.started.at(0)->prompt.size(), 40U);
  EXPECT_THAT(fault("/v1/embeddings", body(39, "")),
              HasSubstr("input: is 41 tokens long, but the model takes at most 40 tokens"));
  EXPECT_EQ(call("POST", "/v1/embeddings", body(39, R"(,"truncate_prompt_tokens":-1)")).status,
            200);
  EXPECT_EQ(serving.started.at(1)->prompt.size(), 40U);
  EXPECT_EQ(call("POST", "/v1/embeddings", body(39, R"(,"truncate_prompt_tokens":5)")).status, 200);
  EXPECT_EQ(serving.started.at(2)->prompt, (std::vector<TokenId>{1, 'x', 'x', 'x', 2}));
  const std::string tokens = R"({"model":"tiny","input":[9,8,7,6],"truncate_prompt_tokens":3})";
  EXPECT_EQ(call("POST", "/v1/embeddings", tokens).status, 200);
  EXPECT_EQ(serving.started.at(3)->prompt, (std::vector<TokenId>{9, 8, 7}));
}

}  // namespace
}  // namespace heddle::gateway
