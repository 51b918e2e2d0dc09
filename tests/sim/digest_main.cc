// Prints a digest of a busy, faulty few minutes under every policy set: the same for every build
// and every machine, or the simulator is not deterministic. Exits with 77 where it cannot run.
#include <cinttypes>
#include <cstdio>

#include "base/rng.h"
#include "sim/faults.h"
#include "sim/test_world.h"

namespace heddle::sim {
namespace {

std::vector<TraceRow> requests() {
  Rng rng(11);
  std::vector<TraceRow> rows;
  double at = 0;
  for (int i = 0; i < 400; ++i) {
    at += 0.1 * static_cast<double>(rng.below(12));
    rows.push_back(row_at(at,
                          rng.below(6),
                          1 + static_cast<std::int64_t>(rng.below(3000)),
                          1 + static_cast<std::int64_t>(rng.below(600))));
  }
  return rows;
}

int print_digests() {
  const std::vector<TraceRow> rows = requests();
  for (const PlaneEntry& entry : plane_entries()) {
    PlaneInputs inputs{.demand = std::vector<OfflineDemand>(6, {.requests_per_second = 0.3})};
    auto plane = make_plane(entry.name, inputs);
    HEDDLE_CHECK(plane.has_value());
    const TestRun run =
        run_world(test_cluster(2, 2), test_models(6), **plane, rows, [](World& world) {
          inject(world, random_faults(Rng(5), 12, std::chrono::minutes(4), 4, 2));
        });
    std::printf("%-16.*s %016" PRIx64 " %" PRId64 " events\n",
                static_cast<int>(entry.name.size()),
                entry.name.data(),
                run.digest,
                run.counts.events);
  }
  return 0;
}

}  // namespace
}  // namespace heddle::sim

int main() {
#ifdef HEDDLE_NEEDS_V3
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2")) {
    std::puts("this CPU is not of level x86-64-v3");
    return 77;
  }
#endif
  return heddle::sim::print_digests();
}
