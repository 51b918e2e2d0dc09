// What it costs a hot engine to have a host run attention: of a layer of two short rows, from
// posting it to its states, less the attention itself. The host is another thread, as its process
// is. A table of microseconds, p50 and p95.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "weave/test_pair.h"

using namespace std::chrono_literals;
using heddle::Duration;
using heddle::steady_now;
using heddle::weave::test::Pair;

namespace {

constexpr int kLayers = 2000;

void measure(const char* name, Duration look) {
  Pair pair({.look = 1ms, .patience = 10s});
  std::atomic<bool> over = false;
  std::thread host([&] {
    while (!over) {
      (void)pair.server->serve(look, 10ms);
    }
  });
  pair.client->begin_step(Pair::sequences());
  std::vector<double> times;
  for (int i = 0; i < kLayers; ++i) {
    if (look == Duration{}) {
      std::this_thread::sleep_for(200us);  // The host is asleep by then, not on its way there.
    }
    const Duration busy = pair.server->busy();
    const auto began = steady_now();
    pair.client->post(pair.rows(0));
    (void)pair.client->await(pair.rows(0));
    times.push_back(heddle::to_seconds(steady_now() - began - (pair.server->busy() - busy)) * 1e6);
  }
  over = true;
  host.join();
  std::sort(times.begin(), times.end());
  std::printf("| %s | %.1f | %.1f |\n", name, times[kLayers / 2], times[kLayers * 95 / 100]);
}

}  // namespace

int main() {
  std::printf("| the host | p50 [us] | p95 [us] |\n| --- | --- | --- |\n");
  measure("looks", 1s);
  measure("sleeps", 0s);
  return 0;
}
