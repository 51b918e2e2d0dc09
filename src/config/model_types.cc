#include "config/model_types.h"

#include <algorithm>
#include <array>

#include "spec/dtype.h"

namespace heddle::config {

void declare_types(Fields& f, ModelConfig& model) {
  constexpr std::array kDTypes{
      spec::DType::kStored, spec::DType::kBf16, spec::DType::kF32, spec::DType::kI8};
  std::size_t dtype = 0;
  f.choice(
      {"dtype",
       "Type of weights, KV cache and activations; int8 is of weights, over bfloat16. stored is "
       "bfloat16 too, but for the blocks of a GGUF file, which are computed with as they are where "
       "all devices are CPUs."},
      {"stored", "bfloat16", "float32", "int8"},
      dtype);
  model.dtype = kDTypes[dtype];
  auto kv = static_cast<std::size_t>(model.kv);
  f.choice({"kv_cache_dtype",
            "Type of keys and values in memory: auto is bfloat16, or float32 where dtype is. int8 "
            "and fp8 (E4M3; fp8_e4m3 is the same) take about half of bfloat16's memory, with a "
            "scale for each head of a token."},
           {"auto", "int8", "fp8", "fp8_e4m3"},
           kv);
  model.kv = std::min(static_cast<spec::KvType>(kv), spec::KvType::kF8);
  std::size_t inputs = 0;
  f.choice({"activation_dtype",
            "What inputs of products are rounded to: auto is FP8 in prompts on GPUs, where a "
            "checkpoint of FP8 weights with a scale by matrix or row says so. bfloat16 takes them "
            "as they are, everywhere."},
           {"auto", "bfloat16"},
           inputs);
  model.f8_inputs = inputs == 0;
}

}  // namespace heddle::config
