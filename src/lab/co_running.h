#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/device_bench.h"
#include "lab/forked_process.h"

namespace heddle::lab {

/// What an engine does over and over: decode steps of some sequences, or steps that read a prompt.
struct EngineLoad {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;   ///< Of each in a step; 1: it decodes.
  std::int64_t context = 0;  ///< Of each before.

  friend bool operator==(const EngineLoad&, const EngineLoad&) = default;
};

/// "decode of 16", "prefill of 256".
[[nodiscard]] std::string load_name(const EngineLoad& load);

/// How the other engine stands to this one.
enum class Standing : std::uint8_t {
  kEqual,
  kBelow,  ///< Of lower priority: nicer (cores), or a client below normal (GPUs under MPS).
};

/// What steps of two engines on one device took, each in a process of its own: means of many.
struct CoRunSample {
  EngineLoad own{};
  EngineLoad other{};
  Standing standing = Standing::kEqual;  ///< Of the other.
  double alone = 0;                      ///< A step of one's own [s].
  double together = 0;                   ///< The same beside the other [s].
  double other_alone = 0;                ///< A step of the other's [s].
  double other_together = 0;             ///< The same beside one's own [s].
};

/// An engine in a process of its own that runs beside this one's on the same device.
class CoRunner {
 public:
  /// Forks, as ForkedProcess says. `device` is asked there, when the engine is made.
  explicit CoRunner(std::function<Result<CalibrationOptions>()> device,
                    Standing standing = Standing::kEqual);

  [[nodiscard]] Standing standing() const { return standing_; }
  /// Makes the engine, with so much memory of the device.
  Result<void> begin(std::uint64_t memory);
  /// Its steps begin, and go on until rest().
  Result<void> run(const EngineLoad& load);
  /// Ends them; what one took in the mean [s].
  Result<double> rest();
  /// Gives the device back.
  Result<void> end();

 private:
  Result<std::string> ask(const std::string& what);

  Standing standing_;
  ForkedProcess process_;
};

/// Measures an engine alone and beside `other`: a decode of one sequence, one of many, and a
/// prompt, each with each, as far as there is room for their KV. Both have half of the memory. What
/// an engine is refused is the error, as kResourceExhausted where half does not hold the model.
Result<std::vector<CoRunSample>> time_co_running(const CalibrationOptions& options,
                                                 CoRunner& other);

}  // namespace heddle::lab
