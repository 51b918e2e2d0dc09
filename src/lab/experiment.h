#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "bench/load.h"
#include "bench/prompts.h"
#include "bench/results.h"
#include "bench/run.h"
#include "lab/counters.h"
#include "lab/lab_file.h"
#include "sim/request_row.h"

namespace heddle::lab {

/// How often what a run exposes is looked at, in its own time.
inline constexpr Duration kWatchInterval = std::chrono::milliseconds(500);

/// What one policy made of one seed's requests. Times count from the start of the run.
struct LabRun {
  std::string policy{};
  std::int64_t seed = 0;
  std::vector<bench::Row> rows{};  ///< Of requests that were due after the warm-up, as they ended.
  Counters counted{};              ///< Since the end of the warm-up.
  std::vector<std::pair<Duration, Counters>> moments{};  ///< What was exposed, and when.
  Duration span{};  ///< From the end of the warm-up to the end of the last request.
  /// Pages of each device.
  std::vector<std::int64_t> device_pages{};
};

/// Starts servers and sends them requests, one after the other. One thread, which must stay to the
/// end: servers die with it.
class Experiment {
 public:
  /// `program` is this one; `folder` gets a folder for every run, with its configuration, log and
  /// data. `lab` outlives it.
  Experiment(const LabFile& lab, std::string program, std::string folder);

  /// One run. `show` is told how far it is a few times a second. kUnavailable, with the end of its
  /// log, where the server does not do; kCancelled after SIGINT.
  Result<LabRun> run(const LabPolicy& policy,
                     std::int64_t seed,
                     const std::vector<bench::Shot>& shots,
                     const std::function<void(const bench::Progress&)>& show);

 private:
  Result<void> learn_tokenizers(const HttpAddress& server);

  const LabFile& lab_;
  std::string program_;
  std::string folder_;
  /// What prompts are made of; none of an external engine's. By model, as below; the same in all
  /// runs.
  std::vector<std::vector<TokenId>> prompt_tokens_{};
  /// What answers are made of: a token that can be seen, or it could not be timed.
  std::vector<TokenId> answer_tokens_{};
};

/// What the requests of each model are held to, by its place in the file. Under the first policy,
/// which is to say under all: what others are measured by must not depend on them.
[[nodiscard]] std::vector<sim::Objective> objectives(const LabFile& lab);

}  // namespace heddle::lab
