#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "spec/json_fields.h"
#include "spec/model_spec.h"

/// How the families of models differ where config.json is silent, and in what it cannot say.
namespace heddle::spec {

// Far above any model, and small enough that no product of dimensions overflows: 2^59 bytes.
inline constexpr std::int64_t kHiddenMax = 1 << 20;
inline constexpr std::int64_t kIntermediateMax = 1 << 22;
inline constexpr std::int64_t kHeadsMax = 1 << 12;
inline constexpr std::int64_t kVocabMax = 1 << 24;
inline constexpr std::int64_t kLayersMax = 1 << 10;
inline constexpr std::int64_t kPositionMax = 1 << 30;
inline constexpr std::int64_t kHeadDimMax = 1 << 12;
inline constexpr std::int64_t kExpertsMax = 1 << 10;

/// Where config.json says nothing, transformers takes these.
struct Family {
  Architecture architecture = Architecture::kLlama;
  std::string_view name{};        ///< In `architectures`.
  std::string_view model_type{};  ///< In `model_type`.
  std::int64_t heads = 0;         ///< 0: must be said, as `vocab`.
  std::int64_t kv_heads = 0;      ///< 0: as many as heads.
  std::int64_t head_dim = 0;      ///< 0: hidden / heads.
  std::int64_t vocab = 0;
  std::int64_t max_position = 0;
  TokenId bos = -1;  ///< -1: none.
  TokenId eos = -1;
  bool tied = false;
  double rope_theta = 10000.0;
  double rms_eps = 1e-6;
};

/// Whether some layers of a family keep a state in place of keys and values (config_hybrid.h).
[[nodiscard]] constexpr bool is_hybrid(Architecture architecture) {
  return architecture == Architecture::kQwen3Next || architecture == Architecture::kQwen35 ||
         architecture == Architecture::kQwen35Moe;
}

/// Whether heads of a family may rotate in part.
[[nodiscard]] constexpr bool rotates_in_part(Architecture architecture) {
  return is_hybrid(architecture) || architecture == Architecture::kPhi3;
}

/// The family of an architecture.
[[nodiscard]] const Family& family_of(Architecture architecture);

/// Decides by `architectures`, or by `model_type` where that is absent. nullptr never without
/// rejecting a field, in words that name all that are built in.
[[nodiscard]] const Family* read_family(JsonFields& fields);

/// Whether it is an encoder with a head that scores: "...ForSequenceClassification".
[[nodiscard]] bool is_scorer(JsonFields& fields);

/// Whether it is a model for text and images, whose decoder is described in `text_config`.
[[nodiscard]] bool has_text_config(JsonFields& fields);

/// What else serves a model that is not built in, for messages.
inline constexpr std::string_view kElsewhere =
    "another engine can serve this model: configure it with `cmd:`";

}  // namespace heddle::spec
