// How well the load generator keeps its times: open-loop streams from a server that paces them,
// generator and server on a thread each. Arguments: streams at once (1000), tokens a second of each
// (20), seconds (10).
#include <cstdio>
#include <cstdlib>

#include "bench/run.h"
#include "bench/test_endpoint.h"

#include <sys/resource.h>

namespace {

double thread_seconds() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

double argument(int count, char** values, int index, double otherwise) {
  return count > index ? std::atof(values[index]) : otherwise;
}

}  // namespace

int main(int count, char** values) {
  using namespace heddle;
  using namespace heddle::bench;
  using namespace std::chrono_literals;
  const double streams = argument(count, values, 1, 1000);
  const double pace = argument(count, values, 2, 20);
  const double seconds = argument(count, values, 3, 10);
  constexpr std::int64_t kTokens = 100;
  const double stream_seconds = static_cast<double>(kTokens) / pace;

  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const Duration gap(static_cast<std::int64_t>(1e9 / pace));
  TestEndpoint endpoint({.pace = gap, .tokens = kTokens});
  const RunOptions options{
      .endpoint = {.port = endpoint.port(), .base_path = "/v1"},
      .models = {"m"},
      .duration = Duration(static_cast<std::int64_t>((seconds + stream_seconds) * 1e9)),
      .patience = 60s};
  // By Little's law so many arrivals a second keep that many streams open.
  const auto load = draw_load({.weights = {1},
                               .input = {64, 64},
                               .output = {kTokens, kTokens},
                               .rate = streams / stream_seconds});
  const double before = thread_seconds();
  const Result<Results> results = run(options, *load, [](const Progress&) {});
  if (!results) {
    std::fprintf(stderr, "%s\n", results.error().message.c_str());
    return 1;
  }
  const auto span = static_cast<double>(results->span().count()) * 1e-9;
  const sim::Quantiles& late = results->lateness();
  const sim::Quantiles& gaps = results->all().itl;
  std::printf("%lld requests, %lld failed, at most %lld streams at once, %.0f pieces a second\n",
              static_cast<long long>(results->all().requests),
              static_cast<long long>(results->all().failed),
              static_cast<long long>(endpoint.most_at_once()),
              static_cast<double>(gaps.count()) / span);
  std::printf("begun late [ms]: P50 %.3f P99 %.3f P99.9 %.3f most %.3f\n",
              late.at(0.5) * 1e3,
              late.at(0.99) * 1e3,
              late.at(0.999) * 1e3,
              late.at(1) * 1e3);
  std::printf(
      "gaps, paced at %.1f ms [ms]: P50 %.2f P99 %.2f P99.9 %.2f; the server's own latest %.2f\n",
      1e3 / pace,
      gaps.at(0.5) * 1e3,
      gaps.at(0.99) * 1e3,
      gaps.at(0.999) * 1e3,
      static_cast<double>(endpoint.latest_token().count()) * 1e-6);
  std::printf("the generator's thread used %.0f %% of a core\n",
              100 * (thread_seconds() - before) / span);
  return 0;
}
