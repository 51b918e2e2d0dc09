#include "spec/config_encoder.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/config_json.h"

namespace heddle::spec {
namespace {

using testing::HasSubstr;

/// A config.json of a small encoder, with further keys in front.
std::string encoder_config(const std::string& architecture,
                           const std::string& type,
                           const std::string& more = "") {
  return R"({"architectures":[")" + architecture + R"("],"model_type":")" + type + "\"," + more +
         R"("vocab_size":50,"hidden_size":32,"num_hidden_layers":3,"num_attention_heads":4,)"
         R"("intermediate_size":48,"max_position_embeddings":40,"torch_dtype":"float32"})";
}

ModelSpec read(const std::string& text) {
  const auto model = parse_model_config(text, "config.json");
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : ModelSpec{};
}

std::string refusal(const std::string& text) {
  const auto model = parse_model_config(text, "config.json");
  EXPECT_FALSE(model);
  return model ? "" : model.error().message;
}

TEST(ConfigEncoder, BertHasAbsolutePositionsAndNormsOfSums) {
  const ModelSpec model = read(encoder_config("BertModel", "bert"));
  EXPECT_EQ(model.architecture, Architecture::kBert);
  EXPECT_EQ(model.encoder, (Encoder{.positions = 40, .first_position = 0, .types = 2}));
  EXPECT_EQ(model.max_position, 40);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.rms_eps, 1e-12);
  EXPECT_EQ(model.norms, Norms::kOfSums);
  EXPECT_EQ(model.activation, Activation::kGelu);
  EXPECT_TRUE(model.qkv_bias && model.out_bias && model.mlp_bias);
  EXPECT_EQ(model.layer_rope, std::vector(3, LayerRope::kNone));
  EXPECT_EQ(model.window, std::vector<std::int64_t>(3, 0));
}

TEST(ConfigEncoder, RobertaCountsPositionsFromBehindItsPadding) {
  const ModelSpec plain = read(encoder_config("RobertaModel", "roberta"));
  EXPECT_EQ(plain.encoder.first_position, 2);
  EXPECT_EQ(plain.max_position, 38);
  const ModelSpec xlm = read(
      encoder_config("XLMRobertaModel", "xlm-roberta", R"("pad_token_id":4,"type_vocab_size":1,)"));
  EXPECT_EQ(xlm.architecture, Architecture::kXlmRoberta);
  EXPECT_EQ(xlm.encoder, (Encoder{.positions = 40, .first_position = 5, .types = 1}));
  EXPECT_EQ(xlm.max_position, 35);
}

TEST(ConfigEncoder, OneLabelScores) {
  for (const auto& [name, type] :
       {std::pair("BertForSequenceClassification", "bert"),
        std::pair("RobertaForSequenceClassification", "roberta"),
        std::pair("XLMRobertaForSequenceClassification", "xlm-roberta")}) {
    EXPECT_TRUE(read(encoder_config(name, type, R"("id2label":{"0":"LABEL_0"},)")).encoder.scores);
    EXPECT_TRUE(read(encoder_config(name, type, R"("num_labels":1,)")).encoder.scores);
  }
  EXPECT_THAT(refusal(encoder_config("BertForSequenceClassification", "bert")),
              HasSubstr("num_labels is of 2 labels; only models that score, with one label"));
  EXPECT_THAT(refusal(encoder_config(
                  "BertForSequenceClassification", "bert", R"("id2label":{"0":"a","1":"b"},)")),
              HasSubstr("id2label is of 2 labels"));
}

TEST(ConfigEncoder, RefusesWhatIsNotBuiltIn) {
  EXPECT_THAT(refusal(encoder_config("BertModel", "bert", R"("hidden_act":"relu",)")),
              HasSubstr("only \"gelu\" is built in"));
  EXPECT_THAT(
      refusal(encoder_config("BertModel", "bert", R"("position_embedding_type":"relative_key",)")),
      HasSubstr("only \"absolute\" is built in"));
  EXPECT_THAT(refusal(encoder_config("BertModel", "bert", R"("is_decoder":true,)")),
              HasSubstr("a BertModel is an encoder here"));
  EXPECT_THAT(refusal(encoder_config("RobertaModel", "roberta", R"("pad_token_id":39,)")),
              HasSubstr("max_position_embeddings"));
  EXPECT_THAT(refusal(encoder_config("BertForMaskedLM", "bert")), HasSubstr("architectures"));
  EXPECT_THAT(refusal(encoder_config("RobertaForSequenceClassification", "bert")),
              HasSubstr("it must be \"roberta\""));
}

}  // namespace
}  // namespace heddle::spec
