#include "lab/device_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/units.h"
#include "sim/report.h"

namespace heddle::lab {

namespace {

constexpr std::size_t kTerms = 4;
using Terms = std::array<double, kTerms>;

/// So fast that what a step needs of it takes no time: the fit has no memory terms.
constexpr double kBandwidth = 1e16;
/// What a token costs at least, so that no entry is infinite.
constexpr double kLeastFlopSeconds = 1e-18;
constexpr double kLeastPairSeconds = 1e-18;

double real(std::int64_t value) {
  return static_cast<double>(value);
}

double token_pairs(const StepSample& sample) {
  double pairs = 0;
  for (const sim::PrefillChunk& chunk : sample.chunks) {
    pairs += real(chunk.tokens) * real(chunk.cached) + real(chunk.tokens) * real(chunk.tokens) / 2;
  }
  return pairs;
}

/// What each term of the model is multiplied with.
Terms factors(const sim::ModelShape& shape, const StepSample& sample) {
  const double flops =
      2 * (real(sample.tokens) * real(shape.layers) * real(sim::linear_parameters(shape)) +
           real(sample.rows) * real(shape.vocab) * real(shape.hidden));
  return {1, flops, real(sample.context), token_pairs(sample)};
}

double product(const Terms& a, const Terms& b) {
  double sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) {
    sum += a.at(i) * b.at(i);
  }
  return sum;
}

/// Solves the normal equations for the terms of `subset`, the others being 0, by elimination with
/// pivots; nothing where they are singular or a term is negative.
std::optional<Terms> solve(const std::vector<Terms>& rows, unsigned subset) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < kTerms; ++i) {
    if ((subset >> i & 1U) != 0) {
      chosen.push_back(i);
    }
  }
  const std::size_t size = chosen.size();
  std::vector<std::vector<double>> system(size, std::vector<double>(size + 1));
  for (const Terms& row : rows) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < size; ++k) {
        system[i][k] += row.at(chosen[i]) * row.at(chosen[k]);
      }
      system[i][size] += row.at(chosen[i]);  // Relative errors: every right side is 1.
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    const auto pivot = std::max_element(
        system.begin() + static_cast<std::ptrdiff_t>(i),
        system.end(),
        [i](const auto& a, const auto& b) { return std::abs(a[i]) < std::abs(b[i]); });
    std::swap(*pivot, system[i]);
    if (std::abs(system[i][i]) < 1e-9) {
      return std::nullopt;
    }
    for (std::size_t row = 0; row < size; ++row) {
      const double factor = row == i ? 0 : system[row][i] / system[i][i];
      for (std::size_t k = i; k <= size; ++k) {
        system[row][k] -= factor * system[i][k];
      }
    }
  }
  Terms terms{};
  for (std::size_t i = 0; i < size; ++i) {
    terms.at(chosen[i]) = system[i][size] / system[i][i];
    if (terms.at(chosen[i]) < 0) {
      return std::nullopt;
    }
  }
  return terms;
}

double squared_error(const std::vector<Terms>& rows, const Terms& terms) {
  double sum = 0;
  for (const Terms& row : rows) {
    sum += (product(row, terms) - 1) * (product(row, terms) - 1);
  }
  return sum;
}

/// The factor of sim::step_seconds' law, together = alone + factor * other_alone: the mean over
/// equals that do the same; nothing where nothing was measured. Of unlike steps the law holds where
/// work adds up and not where time is shared out, so that they would say what kind it is, and not
/// how much the engines cost each other.
std::optional<double> fit_co_running(const std::vector<CoRunSample>& samples) {
  double sum = 0;
  double count = 0;
  for (const CoRunSample& sample : samples) {
    if (sample.standing == Standing::kEqual && sample.own == sample.other) {
      sum += (sample.together - sample.alone) / sample.other_alone;
      ++count;
    }
  }
  return count > 0 ? std::optional(std::max(0.0, sum / count)) : std::nullopt;
}

/// Sequences of the longest kind that the memory has room for beside the weights.
std::int64_t most_sequences(const Calibration& measured, const sim::ModelShape& shape) {
  const std::int64_t room = static_cast<std::int64_t>(measured.memory) - sim::weight_bytes(shape);
  const std::int64_t each = sim::kv_bytes_per_token(shape) * measured.model.max_position;
  return std::clamp<std::int64_t>(room / std::max<std::int64_t>(1, each), 1, 256);
}

/// A decimal number that reads back as it was, near enough.
std::string print(double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

/// A time as configurations have it.
std::string print_time(double seconds) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.0fns", seconds * 1e9);
  return text.data();
}

std::string print_rate(double bytes_per_second) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.0fB/s", std::max(1.0, bytes_per_second));
  return text.data();
}

}  // namespace

DeviceFit fit_device(const Calibration& measured) {
  HEDDLE_CHECK(!measured.steps.empty());
  const sim::ModelShape shape = sim::shape_of(measured.model);
  std::vector<Terms> rows;
  Terms scale{};
  for (const StepSample& sample : measured.steps) {
    Terms row = factors(shape, sample);
    for (std::size_t i = 0; i < kTerms; ++i) {
      row.at(i) /= sample.seconds;
      scale.at(i) = std::max(scale.at(i), row.at(i));
    }
    rows.push_back(row);
  }
  for (Terms& row : rows) {  // Columns of about the same size, or sums would lose digits.
    for (std::size_t i = 0; i < kTerms; ++i) {
      row.at(i) = scale.at(i) > 0 ? row.at(i) / scale.at(i) : 0;
    }
  }
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned subset = 1; subset < 1U << kTerms; ++subset) {
    const std::optional<Terms> terms = solve(rows, subset);
    // A term more has to be worth it: it always fits noise a little better.
    const double error = terms ? squared_error(rows, *terms) : least;
    if (error < least * 0.999) {
      least = error;
      best = *terms;
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    best.at(i) = scale.at(i) > 0 ? best.at(i) / scale.at(i) : 0;
  }
  DeviceFit fit{.fixed = best[0],
                .flops = 1 / std::max(best[1], kLeastFlopSeconds),
                .context_token = best[2],
                .prefill_token_pair = best[3],
                .error = std::sqrt(least / static_cast<double>(rows.size()))};
  if (!measured.maps.empty()) {
    const MapSample& many = measured.maps.back();
    fit.map_page = (many.map + many.unmap) / 2 / real(std::max<std::int64_t>(1, many.pages));
  }
  fit.co_running = fit_co_running(measured.co_runs);
  return fit;
}

twin::StepTimes step_times(const DeviceFit& fit, const sim::ModelShape& shape) {
  const Terms token = factors(shape, {.tokens = 1});
  const Terms row = factors(shape, {.rows = 1});
  return {.fixed = fit.fixed,
          .token = token.at(1) / fit.flops,
          .row = row.at(1) / fit.flops,
          .context = fit.context_token,
          .pair = fit.prefill_token_pair};
}

double predict(const DeviceFit& fit, const sim::ModelShape& shape, const StepSample& sample) {
  return product(factors(shape, sample),
                 {fit.fixed, 1 / fit.flops, fit.context_token, fit.prefill_token_pair});
}

std::map<std::string, std::string> simulator_files(const Calibration& measured,
                                                   const DeviceFit& fit,
                                                   const std::string& name) {
  const sim::ModelShape shape = sim::shape_of(measured.model);
  // sim::gpu_time asks for parts of peaks: of `flops` in attention over prompts, and of the
  // bandwidth in attention over the cache.
  const double queries = real(shape.layers) * 4 * real(shape.heads * shape.head_dim);
  const double self = queries / fit.flops / std::max(fit.prefill_token_pair, kLeastPairSeconds);
  const double kv = real(sim::kv_bytes_per_token(shape)) / kBandwidth /
                    std::max(fit.context_token, kLeastPairSeconds);
  std::map<std::string, std::string> files;
  files["gpus.yaml"] =
      "gpus:\n  " + name + ": {flops: " + print(fit.flops) +
      ", bandwidth: " + print_rate(kBandwidth) + ", memory: " + std::to_string(measured.memory) +
      "B, compute: 1, weights: 1, kv: " + print(kv) +
      ", pointwise: 1, pointwise_overhead: " + print_time(fit.fixed / real(shape.layers)) +
      ", prefill_self: " + print(self) + ", prefill_cached: " + print(self) +
      (fit.co_running ? ", co_running: " + print(*fit.co_running) : "") + "}\n";
  files["models.yaml"] =
      "models:\n  " + name + ": {hidden: " + std::to_string(shape.hidden) +
      ", intermediate: " + std::to_string(shape.intermediate) +
      ", layers: " + std::to_string(shape.layers) + ", heads: " + std::to_string(shape.heads) +
      ", kv_heads: " + std::to_string(shape.kv_heads) +
      ", head_dim: " + std::to_string(shape.head_dim) + ", vocab: " + std::to_string(shape.vocab) +
      ", tied: " + (shape.tied_embeddings ? "true" : "false") + "}\n";
  files["engines.yaml"] = "engines:\n  " + name + ": {fixed: 0s}\n";
  files["platforms.yaml"] =
      "platforms:\n  " + name + ": {map_page: " + print_time(fit.map_page) + "}\n";
  files["cluster.yaml"] =
      "page: " + std::to_string(measured.page_bytes) + "B\nhosts:\n  - {name: " + name +
      ", gpu: " + name + ", gpus: 1, usable: 1, cache: 1GiB, nic: " + print_rate(kBandwidth) +
      ", pcie: " + print_rate(measured.copy_alone) + ", platform: " + name + "}\n";
  files["rules.yaml"] =
      "models:\n  \"*\": {shape: " + name + ", engine: " + name +
      ", batch: " + std::to_string(most_sequences(measured, shape)) +
      ", chunk: 512, overhead: 0B, context: " + std::to_string(measured.model.max_position) + "}\n";
  return files;
}

std::vector<std::vector<std::string>> link_table(const Calibration& measured) {
  std::vector<std::vector<std::string>> rows{{"link", ""}};
  rows.push_back({"copy while the engine rests", format_rate(measured.copy_alone)});
  rows.push_back({"copy while it decodes", format_rate(measured.copy_decoding)});
  for (const MapSample& sample : measured.maps) {
    const auto each = [&](double seconds) {
      return sim::format_seconds(seconds / real(sample.pages) * 1e6) + " us";
    };
    rows.push_back({"map / unmap a page, " + std::to_string(sample.pages) + " at once",
                    each(sample.map) + " / " + each(sample.unmap)});
  }
  return rows;
}

std::vector<std::vector<std::string>> step_table(const Calibration& measured,
                                                 const DeviceFit& fit) {
  std::vector<std::vector<std::string>> rows{
      {"step", "tokens", "cached", "batch", "context", "ms", "fitted"}};
  const sim::ModelShape shape = sim::shape_of(measured.model);
  for (const StepSample& sample : measured.steps) {
    const bool prompt = !sample.chunks.empty();
    rows.push_back({prompt ? "prefill" : "decode",
                    std::to_string(sample.tokens),
                    prompt ? std::to_string(sample.chunks[0].cached) : "-",
                    prompt ? "-" : std::to_string(sample.rows),
                    prompt ? "-" : std::to_string(sample.context / sample.rows),
                    sim::format_seconds(sample.seconds * 1e3),
                    sim::format_seconds(predict(fit, shape, sample) * 1e3)});
  }
  return rows;
}

std::vector<std::vector<std::string>> co_run_table(const Calibration& measured,
                                                   const DeviceFit& fit) {
  std::vector<std::vector<std::string>> rows{
      {"engine", "beside one with", "alone ms", "together ms", "times", "fitted ms", "the other"}};
  for (const CoRunSample& sample : measured.co_runs) {
    const bool equal = sample.standing == Standing::kEqual;
    const double law = sample.alone + fit.co_running.value_or(0) * sample.other_alone;
    rows.push_back({load_name(sample.own),
                    load_name(sample.other) + (equal ? "" : ", below it"),
                    sim::format_seconds(sample.alone * 1e3),
                    sim::format_seconds(sample.together * 1e3),
                    sim::format_seconds(sample.together / sample.alone),
                    equal && fit.co_running ? sim::format_seconds(law * 1e3) : "-",
                    sim::format_seconds(sample.other_together / sample.other_alone) + " times"});
  }
  return rows;
}

std::vector<std::vector<std::string>> unrecorded_table(const Calibration& measured) {
  std::vector<std::vector<std::string>> rows{{"decode", "context", "enqueued ms", "replayed ms"}};
  for (const UnrecordedSample& sample : measured.unrecorded) {
    rows.push_back({std::to_string(sample.rows),
                    std::to_string(sample.context),
                    sim::format_seconds(sample.seconds * 1e3),
                    sim::format_seconds(sample.recorded * 1e3)});
  }
  return rows;
}

std::vector<std::vector<std::string>> op_table(const Calibration& measured) {
  std::vector<std::vector<std::string>> rows{
      {"operation", "tokens", "context", "us", "GB/s", "TFLOP/s"}};
  for (const OpSample& sample : measured.ops) {
    rows.push_back({sample.op,
                    std::to_string(sample.tokens),
                    std::to_string(sample.context),
                    sim::format_seconds(sample.seconds * 1e6),
                    sim::format_seconds(sample.bytes / sample.seconds * 1e-9),
                    sim::format_seconds(sample.flops / sample.seconds * 1e-12)});
  }
  return rows;
}

}  // namespace heddle::lab
