#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class EmbeddingTest : public GatewayTest {
 protected:
  /// What FakeServing makes of a prompt of so many tokens, at length 1.
  static void expect_embedding(const json& got, double tokens) {
    const double length = std::sqrt(25 + tokens * tokens);
    ASSERT_EQ(got.size(), 3U);
    EXPECT_NEAR(got[0], 3 / length, 1e-6);
    EXPECT_NEAR(got[2], tokens / length, 1e-6);
  }
};

TEST_F(EmbeddingTest, EveryInputGetsAVectorOfLengthOne) {
  start();
  const json answer = ask("POST", "/v1/embeddings", R"({"model":"tiny","input":["ab","abcd"]})");
  EXPECT_EQ(answer["object"], "list");
  expect_embedding(answer["data"][0]["embedding"], 2);
  expect_embedding(answer["data"][1]["embedding"], 4);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 6);
  const spec::SamplingParams& params = serving.started.at(0)->choices.at(0);
  EXPECT_EQ(params.pooling, spec::Pooling::kLast);
  EXPECT_EQ(params.max_tokens, 1);
  const json tokens = ask("POST", "/v1/embeddings", R"({"model":"tiny","input":[97,98,99]})");
  expect_embedding(tokens["data"][0]["embedding"], 3);
}

TEST_F(EmbeddingTest, TyposAreWarnedOf) {
  start();
  const TestResponse answer =
      call("POST", "/v1/embeddings", R"({"model":"tiny","input":"a","dimension":2,"user":"u"})");
  EXPECT_EQ(answer.headers.at("x-heddle-warnings"),
            "dimension: is not a field of this endpoint, and was ignored; did you mean "
            "\"dimensions\"?");
}

TEST_F(EmbeddingTest, DimensionsAndEncoding) {
  start();
  const json cut = ask("POST", "/v1/embeddings", R"({"model":"tiny","input":"ab","dimensions":2})");
  EXPECT_EQ(cut["data"][0]["embedding"], json({0.6000000238418579, 0.800000011920929}));
  const json bytes =
      ask("POST",
          "/v1/embeddings",
          R"({"model":"tiny","input":"ab","dimensions":2,"encoding_format":"base64"})");
  EXPECT_EQ(bytes["data"][0]["embedding"], "mpkZP83MTD8=");
  const TestResponse wide =
      call("POST", "/v1/embeddings", R"({"model":"tiny","input":"ab","dimensions":33})");
  EXPECT_EQ(wide.status, 400) << "the model's hidden size is 32";
  EXPECT_EQ(call("POST", "/v1/embeddings", R"({"model":"tiny","input":""})").status, 400);
}

TEST_F(EmbeddingTest, TheModelsFilesAndTheConfigurationSayWhichStatesCount) {
  std::filesystem::create_directory(model.directory() / "1_Pooling");
  model.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  config.models[1].pooling = config::Pooling::kLast;
  start();
  (void)ask("POST", "/v1/embeddings", R"({"model":"tiny","input":"ab"})");
  (void)ask("POST", "/v1/embeddings", R"({"model":"org/name:8b","input":"ab"})");
  EXPECT_EQ(serving.started.at(0)->choices.at(0).pooling, spec::Pooling::kMean);
  EXPECT_EQ(serving.started.at(1)->choices.at(0).pooling, spec::Pooling::kLast);
}

TEST_F(EmbeddingTest, FailuresAreTold) {
  serving.failure = Error{.code = Code::kUnavailable, .message = "weights are gone"};
  start();
  EXPECT_EQ(call("POST", "/v1/embeddings", R"({"model":"tiny","input":"ab"})").status, 503);
}

}  // namespace
}  // namespace heddle::gateway
