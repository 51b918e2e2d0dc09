// config.json and generation_config.json: whatever is accepted describes a model whose image and
// memory needs can be worked out without overflow.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "spec/config_json.h"
#include "spec/memory_needs.h"
#include "spec/quantisation.h"
#include "store/image_layout.h"

using heddle::spec::DType;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto generation =
      heddle::spec::parse_generation_config(text, "generation_config.json", 100);
  if (generation) {
    for (const heddle::TokenId token : generation->eos) {
      HEDDLE_CHECK(token >= 0 && token < 100);
    }
  }
  const auto quantisation = heddle::spec::parse_quantisation(text, "config.json");
  if (quantisation && quantisation->packing != heddle::spec::Packing::kNone &&
      quantisation->packing != heddle::spec::Packing::kScaled) {
    HEDDLE_CHECK(quantisation->bits == 4 || quantisation->bits == 8);
    HEDDLE_CHECK(quantisation->group >= 0);
  }
  const auto model = heddle::spec::parse_model_config(text, "config.json");
  if (!model) {
    HEDDLE_CHECK(model.error().message.starts_with("config.json: "));
    return 0;
  }
  HEDDLE_CHECK(model->heads % model->kv_heads == 0 && model->head_dim % 2 == 0);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8, DType::kStored}) {
    const auto needs = heddle::spec::memory_needs(*model, dtype);
    const auto image = heddle::store::plan_image(*model, dtype);
    HEDDLE_CHECK(needs.weights <= image.bytes);
    HEDDLE_CHECK(needs.weights < needs.smallest && needs.smallest <= needs.one_context);
  }
  return 0;
}
