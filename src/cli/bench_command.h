#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/time.h"
#include "cli/simulate_trace.h"

namespace CLI {
class App;
}

namespace heddle::cli {

/// Of `heddle bench`. Texts are as typed, and checked when it runs.
struct BenchOptions {
  std::string url = "127.0.0.1:8080";
  std::string api_key{};
  std::string api = "chat";
  std::vector<std::string> models{};  ///< "name" or "name=weight".
  TraceOptions trace{};
  double rate = 0;
  std::int64_t concurrency = 0;
  std::int64_t requests = 0;
  Duration duration{};
  Duration timeout = std::chrono::minutes(10);
  std::string input_tokens = "128";
  std::string output_tokens = "64";
  bool ignore_eos = false;
  std::uint64_t seed = 1;
  std::string slo{};
  std::string json{};
  std::string html{};
};

/// Declares the verb; where it is chosen, `chosen` becomes what runs it.
void add_bench_command(CLI::App& app, BenchOptions& options, std::function<int()>& chosen);

/// Sends load to a server and tells how it took it.
int bench(const BenchOptions& options);

}  // namespace heddle::cli
