#pragma once

#include "spec/config_family.h"
#include "spec/json_fields.h"
#include "spec/model_spec.h"

/// config.json of encoders: BERT, RoBERTa and XLM-RoBERTa.
namespace heddle::spec {

/// Whether models of a family are encoders, with `encoder` in their specs.
[[nodiscard]] constexpr bool encodes(Architecture architecture) {
  return architecture == Architecture::kBert || architecture == Architecture::kRoberta ||
         architecture == Architecture::kXlmRoberta;
}

/// Reads all that config.json says of an encoder but its dtype and special tokens. Absent keys mean
/// what they mean to transformers. Rejected is what is not built in: another activation than
/// "gelu", other positions than absolute ones, cross attention, or of a model that classifies
/// other than one label. RoBERTa counts positions from pad_token_id + 1 on, so it takes as many
/// tokens less than `max_position_embeddings`.
/// @param scores  It is a model for sequence classification.
void read_encoder(JsonFields& fields, const Family& family, bool scores, ModelSpec& model);

}  // namespace heddle::spec
