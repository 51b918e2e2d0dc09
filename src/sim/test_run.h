#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/planes/planes.h"
#include "sim/results.h"
#include "sim/test_world.h"

namespace heddle::sim {

/// Two requests: model 0 at 0 s, model 1 at 30 s, on one GPU that has room for one of the two. No
/// instance is kept, so both start cold.
inline std::unique_ptr<Results> run_two_models(Results::Options options) {
  ClusterSpec cluster = test_cluster(1, 1);
  cluster.hosts[0].usable = 0.35;
  const std::vector<ModelSpec> models = test_models(2);
  auto plane = make_plane("serverlessllm", {.demand = {}, .flags = {{"keep_alive", "1"}}});
  const Duration warmup = options.warmup;
  auto results = std::make_unique<Results>(std::move(options));
  World world(cluster,
              models,
              **plane,
              *results,
              {.sample_period = std::chrono::seconds(1), .warmup = warmup});
  ListSource source(
      {{.arrival = Instant(), .model = ModelId(0), .input_tokens = 100, .output_tokens = 10},
       {.arrival = Instant(std::chrono::seconds(30)),
        .model = ModelId(1),
        .input_tokens = 200,
        .output_tokens = 20}});
  world.run(source);
  results->finish(world);
  return results;
}

}  // namespace heddle::sim
