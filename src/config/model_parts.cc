#include "config/model_parts.h"

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

namespace heddle::config {

void declare_parts(Fields& f, ModelConfig& model) {
  f.integer(
      {"tensor_parallel",
       "Shard the model over so many devices, which it has to itself while it is there: 1, 2, "
       "4 or 8."},
      {.least = 1, .most = 8},
      model.tensor_parallel);
  f.integer({"pipeline_parallel",
             "Cut the model into so many stages, each with a range of its layers, on devices which "
             "it has to itself while it is there: 1, 2, 4 or 8."},
            {.least = 1, .most = 8},
            model.pipeline_parallel);
  for (const auto& [key, devices] : {std::pair("tensor_parallel", model.tensor_parallel),
                                     std::pair("pipeline_parallel", model.pipeline_parallel)}) {
    if (std::popcount(static_cast<std::uint64_t>(devices)) != 1) {
      f.reject(key, "is " + std::to_string(devices) + "; want 1, 2, 4 or 8");
    }
  }
  if (model.tensor_parallel > 1 && model.pipeline_parallel > 1) {
    f.reject("pipeline_parallel", "a model is either sharded or cut into stages");
  }
  f.integer({"cold_start_hosts",
             "Hosts of a cluster that fetch the model together when none has it, each a range of "
             "its layers, at most; 1: one host alone."},
            {.least = 1, .most = 4},
            model.cold_start_hosts);
  f.section(
      {"experts", "Of a model with experts on CPU devices: where these are."}, [&](Fields& e) {
        e.fraction(
            {"resident", "The share in a device's memory at once; the rest stay at the host."},
            model.experts_resident);
      });
  if (f.has("experts") && model.block() > 1) {
    f.reject("experts", "of sharded models and those in stages all experts are on their devices");
  }
}

}  // namespace heddle::config
