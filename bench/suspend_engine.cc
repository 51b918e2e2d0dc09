// A table: what it takes to suspend an engine of a given size by each level, and to bring it back.
//
//     suspend_engine [anonymous MiB] [MiB of a file] [rounds]
//
// The engine is tests/engines/engine.py, which answers at once: what is left is heddle's own time
// and the kernel's. Medians over the rounds; "probe" is the one request that is asked after each
// resume.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/test_places.h"
#include "external/external_engine.h"
#include "external/test_engine.h"

namespace heddle::external {
namespace {

namespace asio = boost::asio;
using spec::SuspendLevel;
using Milliseconds = std::chrono::duration<double, std::milli>;

Holding measured(asio::io_context& loop, asio::awaitable<Result<Holding>> work) {
  Result<Holding> holding = run(loop, std::move(work));
  if (!holding) {
    std::fprintf(stderr, "%s\n", holding.error().message.c_str());
    std::exit(1);
  }
  return std::move(holding).value();
}

/// Medians of phases, in the order in which they came.
class Table {
 public:
  void add(const Holding& holding) {
    for (const Phase& phase : holding.phases) {
      if (!times_.contains(phase.name)) {
        order_.push_back(phase.name);
      }
      times_[phase.name].push_back(Milliseconds(phase.took).count());
    }
  }
  void print() {
    for (const std::string& name : order_) {
      std::vector<double>& times = times_[name];
      std::sort(times.begin(), times.end());
      std::printf("  %s %.2f ms", name.c_str(), times[times.size() / 2]);
    }
    std::printf("\n");
  }

 private:
  std::vector<std::string> order_{};
  std::map<std::string, std::vector<double>> times_{};
};

void measure(const std::string& anonymous, const std::string& file, int rounds) {
  constexpr unsigned kMibShift = 20;
  asio::io_context loop(1);
  config::EngineConfig config;
  config.kind = spec::EngineKind::kVllm;
  config.upstream.port = free_port();
  config.command = {"python3",
                    places::source("tests/engines/engine.py"),
                    "--port",
                    std::to_string(config.upstream.port),
                    "--any-model",
                    "--anonymous-mib",
                    anonymous,
                    "--file-mib",
                    file};
  EngineTools tools;
  tools.blocking_pool = std::make_shared<BlockingPool>(2);
  tools.grouping = best_grouping();
  std::optional<ExternalEngine> engine;
  engine.emplace(
      loop.get_executor(), "bench", config, false, tools, [](const std::string&) { std::exit(1); });
  const Holding started = measured(loop, engine->start());
  std::printf("engine of %llu MiB, by %s\n",
              static_cast<unsigned long long>(started.device_bytes >> kMibShift),
              std::string(name(tools.grouping)).c_str());
  for (const SuspendLevel level :
       {SuspendLevel::kFreeze, SuspendLevel::kReclaim, SuspendLevel::kSleep}) {
    Table table;
    Holding down;
    for (int i = 0; i < rounds; ++i) {
      down = measured(loop, engine->suspend(level));
      table.add(down);
      table.add(measured(loop, engine->resume()));
    }
    std::printf("%-8s leaves %llu MiB:",
                std::string(spec::name(level)).c_str(),
                static_cast<unsigned long long>(down.device_bytes >> kMibShift));
    table.print();
  }
  engine.reset();
  tools.blocking_pool->finish();
}

}  // namespace
}  // namespace heddle::external

int main(int count, char** arguments) {
  const std::string anonymous = count > 1 ? arguments[1] : "4096";
  const std::string file = count > 2 ? arguments[2] : "512";
  heddle::external::measure(anonymous, file, count > 3 ? std::atoi(arguments[3]) : 9);
  return 0;
}
