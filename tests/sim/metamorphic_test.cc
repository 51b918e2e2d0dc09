// What must hold of any policy, whatever the numbers are: more servers, faster links and fewer
// requests do not make it worse by more than a bound, and no request is left unserved while GPUs
// that would hold its model are empty.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/results.h"
#include "sim/test_world.h"

namespace heddle::sim {
namespace {

constexpr std::uint64_t kSeeds = 4;
/// Policies decide one request after the other, without knowing the next: another order of events
/// can cost some requests their objective. So much may be lost in one workload, and in the mean.
constexpr double kBoundOfOne = 0.10;
constexpr double kBoundOfMean = 0.03;

/// Everything that a run is made of.
struct Situation {
  ClusterSpec cluster{};
  std::vector<ModelSpec> models{};
  std::vector<TraceRow> rows{};
  int keep_alive = 120;  ///< [s]
};

/// Two large models, one of them of two parts, and six small ones on six GPUs: too many to have one
/// each. Bursts of requests, and pauses.
Situation draw(std::uint64_t seed) {
  Situation situation{.cluster = test_cluster(3, 2), .models = test_models(8), .rows = {}};
  for (std::size_t i = 2; i < situation.models.size(); ++i) {
    situation.models[i].shape = test_llama_1b();
  }
  situation.models[1].tp = 2;
  for (ModelSpec& model : situation.models) {
    model.slo_ttft = std::chrono::seconds(15);
    model.slo_tpot = std::chrono::milliseconds(60);
  }
  Rng rng(seed);
  double at = 30;  // Who places models at the beginning has them by then.
  for (int i = 0; i < 400; ++i) {
    at += rng.below(20) == 0 ? static_cast<double>(rng.below(40))
                             : 0.05 * static_cast<double>(rng.below(10));
    const std::uint64_t model = rng.below(3) == 0 ? rng.below(8) : rng.below(3);
    situation.rows.push_back(row_at(at,
                                    model,
                                    1 + static_cast<std::int64_t>(rng.below(1500)),
                                    1 + static_cast<std::int64_t>(rng.below(300))));
  }
  return situation;
}

/// Where idle instances are dropped after a time, this time goes with the pauses of the workload.
std::map<std::string, std::string> flags_of(std::string_view policy, const Situation& situation) {
  return policy.starts_with("serverless") || policy == "hydraserve"
             ? std::map<std::string, std::string>{{"keep_alive",
                                                   std::to_string(situation.keep_alive)}}
             : std::map<std::string, std::string>{};
}

struct Outcomes {
  double attainment = 0;
  WorldCounts counts{};
  RunEnd end{};
};

Outcomes run(std::string_view policy, const Situation& situation) {
  auto plane = make_plane(policy,
                          {.demand = demand_of(situation.models.size(), situation.rows),
                           .flags = flags_of(policy, situation)});
  HEDDLE_CHECK(plane.has_value());
  Results results;
  WorldOptions options;
  for (std::size_t i = 0; i < situation.models.size(); ++i) {
    options.in_host_memory.emplace_back(i);
  }
  World world(situation.cluster, situation.models, **plane, results, options);
  ListSource source(situation.rows);
  world.run(source);
  results.finish(world);
  return {.attainment = results.attainment(), .counts = results.counts(), .end = results.end()};
}

/// Seeds from HEDDLE_SEED on, else from 1.
std::uint64_t first_seed() {
  const char* named = std::getenv("HEDDLE_SEED");  // NOLINT(concurrency-mt-unsafe)
  return named == nullptr ? 1 : std::strtoull(named, nullptr, 10);
}

class Metamorphic : public testing::TestWithParam<std::string_view> {
 protected:
  /// What `change` makes of each workload is not worse than the workload as it is.
  void expect_no_worse(const char* what, const std::function<void(Situation&)>& change) {
    double lost = 0;
    for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
      Situation situation = draw(seed);
      const Outcomes before = run(GetParam(), situation);
      change(situation);
      const Outcomes after = run(GetParam(), situation);
      EXPECT_GE(after.attainment, before.attainment - kBoundOfOne)
          << GetParam() << ", " << what << ", seed " << seed;
      EXPECT_FALSE(after.end.stuck()) << GetParam() << ", " << what << ", seed " << seed;
      lost += (before.attainment - after.attainment) / static_cast<double>(kSeeds);
    }
    EXPECT_LE(lost, kBoundOfMean) << GetParam() << ", " << what << ", seeds from " << first_seed();
    RecordProperty("lost", std::to_string(lost));
  }
};

TEST_P(Metamorphic, MoreServersOfTheSameKind) {
  expect_no_worse("two servers more", [](Situation& situation) {
    situation.cluster.hosts.push_back(situation.cluster.hosts[0]);
    situation.cluster.hosts.push_back(situation.cluster.hosts[0]);
  });
}

TEST_P(Metamorphic, ManyMoreServers) {
  expect_no_worse("twenty servers more", [](Situation& situation) {
    situation.cluster.hosts.insert(situation.cluster.hosts.end(), 20, situation.cluster.hosts[0]);
  });
}

TEST_P(Metamorphic, MoreServersThatHoldNoModel) {
  expect_no_worse("twenty servers with small GPUs more", [](Situation& situation) {
    HostSpec small = situation.cluster.hosts[0];
    small.gpu.name = "small";
    small.gpu.memory = 2'000'000'000;
    situation.cluster.hosts.insert(situation.cluster.hosts.end(), 20, small);
  });
}

TEST_P(Metamorphic, FasterLinks) {
  expect_no_worse("links of twice the speed", [](Situation& situation) {
    for (HostSpec& host : situation.cluster.hosts) {
      for (double* rate : {&host.links.nic,
                           &host.links.pcie,
                           &host.links.nvlink,
                           &host.links.host_memory,
                           &host.links.disk,
                           &host.links.spread}) {
        *rate *= 2;
      }
    }
  });
}

TEST_P(Metamorphic, ALowerRate) {
  expect_no_worse("half the rate", [](Situation& situation) {
    for (TraceRow& row : situation.rows) {
      row.arrival = Instant(row.arrival.time_since_epoch() * 2);
    }
    situation.keep_alive *= 2;
  });
}

// Every model fits: what is not served is refused by those that have placed the models once.
TEST_P(Metamorphic, NothingIsUnservedWhileGpusAreEmpty) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + kSeeds; ++seed) {
    Situation situation = draw(seed);
    HostSpec small = situation.cluster.hosts[0];
    small.gpu.name = "small";
    small.gpu.memory = 8'000'000'000;
    situation.cluster.hosts.insert(situation.cluster.hosts.begin(), 10, small);
    const Outcomes outcomes = run(GetParam(), situation);
    EXPECT_EQ(outcomes.counts.unserved, 0) << GetParam() << ", seed " << seed;
    EXPECT_EQ(outcomes.end.kind, RunEnd::Kind::kDone) << GetParam() << ", seed " << seed;
    EXPECT_EQ(outcomes.counts.completed + outcomes.counts.refused,
              static_cast<std::int64_t>(situation.rows.size()));
  }
}

std::string name_of(const testing::TestParamInfo<std::string_view>& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '+', 'p');
  return name;
}

std::vector<std::string_view> policies() {
  std::vector<std::string_view> names;
  for (const PlaneEntry& entry : plane_entries()) {
    names.push_back(entry.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Planes, Metamorphic, testing::ValuesIn(policies()), name_of);

}  // namespace
}  // namespace heddle::sim
