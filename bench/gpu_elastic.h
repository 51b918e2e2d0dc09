#pragma once

// What it costs that KV lies on pages here and there.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "bench/gpu_bed.h"
#include "bench/gpu_report.h"

namespace heddle::bench {

/// Decodes on a bed that is loaded.
class ElasticBench {
 public:
  ElasticBench(Bed& bed, const Report& report) : bed_(bed), report_(report) {}

  /// Decoding with KV on pages that are taken from the pool as sequences grow, wherever they lie,
  /// against KV that lies in a row as if it had been mapped before: the steps in which nobody grows
  /// into another page, on pages in order.
  void run() {
    const std::int64_t batch = bed_.shape().batches[bed_.shape().batches.size() / 2];
    std::vector<double> fixed;
    std::vector<double> grown;
    for (const bool scattered : {false, true, false, true}) {
      if (!elastic_steps(batch, scattered, scattered ? grown : fixed)) {
        report_.skip("elastic KV", "no pages for so much KV");
        return;
      }
    }
    double sum = 0;
    for (const double seconds : grown) {
      sum += seconds;
    }
    const double mean = sum / static_cast<double>(grown.size());
    report_.row("elastic KV, decode of " + std::to_string(batch),
                {{"ms", 1e3 * mean},
                 {"in_place_ms", 1e3 * median(fixed)},
                 {"lost", 1 - median(fixed) / mean}},
                Wanted{.figure = "lost", .most = 0.01});
  }

 private:
  static constexpr ModelId kModel{1};

  /// Appends the seconds of steps: on scattered pages of all, else of those that took no page.
  bool elastic_steps(std::int64_t batch, bool scattered, std::vector<double>& seconds) {
    const std::vector<PageId> held = scattered ? make_holes() : std::vector<PageId>();
    const bool had = elastic_steps_of(batch, scattered, seconds);
    bed_.pool().put(kKvLease, held);
    return had;
  }

  bool elastic_steps_of(std::int64_t batch, bool scattered, std::vector<double>& seconds) {
    Runner runner(bed_, bed_.device());
    runner.add_model(kModel, bed_.window());
    const std::int64_t each =
        runner.engine().kv_pages_for(kModel, bed_.shape().context + 4 * bed_.shape().steps);
    if (batch * each > bed_.pool().free_count()) {
      return false;
    }
    std::vector<engine::SequenceId> ids;
    for (std::int64_t i = 0; i < batch; ++i) {
      ids.push_back(runner.add(kModel, bed_.shape().context));
      runner.compute(ids.back());
    }
    for (std::int64_t i = 0; i < 6 + 2 * bed_.shape().steps; ++i) {
      const std::int64_t pages = runner.engine().kv_pages(kModel);
      const double took = runner.step(ids, 1, true);
      if (i >= 6 && (scattered || runner.engine().kv_pages(kModel) == pages)) {
        seconds.push_back(took);
      }
    }
    for (const auto id : ids) {
      runner.engine().remove_sequence(id);
    }
    return true;
  }

  /// Takes a third of the free pages, here and there, so that what is left lies in pieces.
  std::vector<PageId> make_holes() {
    std::vector<PageId> pages = must(bed_.pool().take(kKvLease, bed_.pool().free_count()));
    Rng rng(2);
    for (std::size_t i = pages.size(); i > 1; --i) {
      std::swap(pages[i - 1], pages[rng.below(i)]);
    }
    const std::size_t kept = pages.size() / 3;
    bed_.pool().put(kKvLease, std::span(pages).subspan(kept));
    pages.resize(kept);
    return pages;
  }

  Bed& bed_;
  const Report& report_;
};

}  // namespace heddle::bench
