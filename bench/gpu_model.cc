// Whole models on a GPU beside what it does at best, all in one run: random weights in bfloat16 in
// the device's pages, in engines, without sockets and files.
//
//   gpu_model [--shape NAME]... [--memory SIZE] [--page SIZE]
//
//   --shape    llama-3-8b, qwen2.5-14b (these two when absent), or tiny, for the emulated driver
//   --memory   for pages; 85 % of what is free when absent
//   --page     size of a page, 2MiB when absent
//
// JSON lines on standard output, a table for people on standard error. docs/guide/gpu.md says how
// to read it. The host needs as much memory as the model has weights, pinned.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "bench/gpu_bed.h"
#include "bench/gpu_ceilings.h"
#include "bench/gpu_report.h"
#include "bench/gpu_shapes.h"
#include "bench/gpu_switch.h"

namespace heddle::bench {
namespace {

constexpr ModelId kFirst{1};
constexpr ModelId kSecond{2};

class ModelBench {
 public:
  ModelBench(const Shape& shape, std::uint64_t memory, std::size_t page_bytes)
      : bed_(shape, memory, page_bytes), report_(shape.name) {}

  void run() {
    const device::Properties& gpu = bed_.device().properties();
    report_.device(gpu.name);
    report_.row("memory",
                {{"page_bytes", static_cast<double>(gpu.page_bytes)},
                 {"pages", static_cast<double>(gpu.page_count)},
                 {"image_bytes", static_cast<double>(bed_.layout().bytes)}});
    if (!bed_.fits()) {
      report_.skip("everything", "the device's pages do not hold the model");
      return;
    }
    const std::vector<Bed::Loaded> loads = load();
    ceilings_ = CeilingBench(bed_, report_).run();
    report_loads(loads);
    prefill();
    for (const bool recorded : {false, true}) {
      decode(recorded);
    }
    switch_models();
    hand_over();
    map();
  }

 private:
  [[nodiscard]] const Shape& shape() const { return bed_.shape(); }

  /// Leaves it loaded.
  std::vector<Bed::Loaded> load() {
    std::vector<Bed::Loaded> loads;
    for (int round = 0; round < shape().rounds; ++round) {
      bed_.window().unmap_all();
      loads.push_back(bed_.load());
    }
    return loads;
  }

  void report_loads(const std::vector<Bed::Loaded>& loads) {
    std::vector<double> seconds;
    std::vector<double> mapping;
    for (const Bed::Loaded& load : loads) {
      seconds.push_back(load.seconds);
      mapping.push_back(load.mapping);
    }
    const double rate = static_cast<double>(bed_.layout().bytes) / median(seconds);
    report_.row("load",
                {{"ms", 1e3 * median(seconds)},
                 {"mapping_ms", 1e3 * median(mapping)},
                 {"gb_s", 1e-9 * rate},
                 {"of_ceiling", rate / ceilings_.copy}});
  }

  /// In one step, and in steps of a quarter of the prompt.
  void prefill() {
    Runner runner(bed_, bed_.device());
    runner.add_model(kFirst, bed_.window());
    const std::int64_t prompt = shape().prompt;
    for (const std::int64_t chunk : {prompt, prompt / 4}) {
      std::vector<double> seconds;
      for (int round = 0; round <= shape().rounds; ++round) {
        const auto id = runner.add(kFirst, prompt);
        double all = 0;
        for (std::int64_t done = 0; done < prompt; done += chunk) {
          all += runner.step({id}, chunk);
        }
        runner.engine().remove_sequence(id);
        if (round > 0) {
          seconds.push_back(all);
        }
      }
      const double took = median(std::move(seconds));
      const auto tokens = static_cast<double>(prompt);
      const double least =
          least_seconds(bed_, ceilings_, prompt, 1, tokens * (tokens + 1) / 2, 0.0);
      report_.row(
          "prefill of " + std::to_string(prompt) + " by " + std::to_string(chunk),
          {{"ms", 1e3 * took}, {"tokens_per_s", tokens / took}, {"of_ceiling", least / took}});
    }
  }

  void decode(bool recorded) {
    Unrecorded unrecorded(bed_.device());
    Runner runner(bed_, recorded ? static_cast<device::Device&>(bed_.device()) : unrecorded);
    runner.add_model(kFirst, bed_.window());
    std::vector<engine::SequenceId> ids;
    for (const std::int64_t batch : shape().batches) {
      const std::string what =
          "decode of " + std::to_string(batch) + (recorded ? ", replayed" : ", enqueued");
      const std::int64_t each =
          runner.engine().kv_pages_for(kFirst, shape().context + 4 * shape().steps);
      if ((batch - std::ssize(ids)) * each > bed_.pool().free_count()) {
        report_.skip(what, "no pages for so much KV");
        continue;
      }
      while (std::ssize(ids) < batch) {
        ids.push_back(runner.add(kFirst, shape().context));
        runner.compute(ids.back());
      }
      decode_batch(runner, {ids.begin(), ids.begin() + batch}, what);
    }
    for (const auto id : ids) {
      runner.engine().remove_sequence(id);
    }
  }

  void decode_batch(Runner& runner,
                    const std::vector<engine::SequenceId>& ids,
                    const std::string& what) {
    constexpr int kWarmUp = 3;  // Of a recording the first step is enqueued, the second records.
    for (int i = 0; i < kWarmUp; ++i) {
      runner.step(ids, 1);
    }
    double cached = 0;
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < shape().steps; ++i) {
      for (const auto id : ids) {
        cached += static_cast<double>(runner.known(id));
      }
      seconds.push_back(runner.step(ids, 1));
    }
    cached /= static_cast<double>(shape().steps);
    const double took = median(seconds);
    const auto batch = std::ssize(ids);
    const double least = least_seconds(bed_, ceilings_, batch, batch, cached, cached);
    report_.row(what,
                {{"ms", 1e3 * took},
                 {"largest_ms", 1e3 * *std::max_element(seconds.begin(), seconds.end())},
                 {"tokens_per_s", static_cast<double>(batch) / took},
                 {"least_ms", 1e3 * least},
                 {"of_ceiling", least / took}});
  }

  void switch_models() {
    SwitchBench bench(bed_);
    std::vector<double> switched;
    std::vector<double> stayed;
    for (int round = 0; round <= 2 * shape().rounds; ++round) {
      const double first = bench.first_step(static_cast<std::size_t>(round % 2));
      const double again = bench.first_step(static_cast<std::size_t>(round % 2));
      if (round > 0) {
        switched.push_back(first);
        stayed.push_back(again);
      }
    }
    report_.row("switch to a model that is there",
                {{"host_ms", 1e3 * median(switched)},
                 {"largest_ms", 1e3 * *std::max_element(switched.begin(), switched.end())},
                 {"without_switch_ms", 1e3 * median(stayed)},
                 {"added_ms", 1e3 * (median(switched) - median(stayed))}});
  }

  /// One sequence after the other of the first model gives up its KV, and one of the second takes
  /// the pages and computes; then back. A sequence of the first decodes in between.
  void hand_over() {
    Runner runner(bed_, bed_.device());
    memory::Window second = bed_.make_window();
    must(second.map(bed_.pages(), device::Access::kRead));
    runner.add_model(kFirst, bed_.window());
    runner.add_model(kSecond, second);
    const std::int64_t sequences = sequences_to_hand();
    if (sequences == 0) {
      report_.skip("KV handed over", "no pages for so much KV");
      return;
    }
    const auto decoding = runner.add(kFirst, shape().context);
    runner.compute(decoding);
    std::vector<engine::SequenceId> givers;
    std::vector<engine::SequenceId> takers;
    for (std::int64_t i = 0; i < sequences; ++i) {
      givers.push_back(runner.add(kFirst, shape().context));
      takers.push_back(runner.add(kSecond, shape().context));
      runner.compute(givers.back());
    }
    const std::int64_t pages = runner.engine().kv_pages(kFirst);
    std::vector<double> quiet;
    for (std::int64_t i = 0; i < 3 + 2 * sequences; ++i) {
      quiet.push_back(runner.step({decoding}, 1));
    }
    quiet.erase(quiet.begin(), quiet.begin() + 3);
    std::vector<double> steps;
    std::vector<double> gives;
    const auto move = [&](const auto& from, const auto& to) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        gives.push_back(seconds_of([&] { runner.engine().preempt(from[i]); }));
        steps.push_back(runner.step({decoding}, 1));
        runner.compute(to[i]);
      }
    };
    move(givers, takers);
    const std::int64_t given = runner.engine().kv_pages(kSecond);
    move(takers, givers);
    report_.row("KV handed over and back",
                {{"pages_before", static_cast<double>(pages)},
                 {"pages_given", static_cast<double>(given)},
                 {"gib",
                  static_cast<double>(given) *
                      static_cast<double>(bed_.device().properties().page_bytes) * 0x1p-30},
                 {"give_us", 1e6 * median(gives)},
                 {"decode_ms", 1e3 * median(steps)},
                 {"decode_largest_ms", 1e3 * *std::max_element(steps.begin(), steps.end())},
                 {"quiet_ms", 1e3 * median(quiet)},
                 {"quiet_largest_ms", 1e3 * *std::max_element(quiet.begin(), quiet.end())}});
  }

  /// Sequences whose KV is what is to change hands, or half of the device, or what there is room
  /// for.
  std::int64_t sequences_to_hand() {
    const std::uint64_t per_sequence = spec::kv_bytes_per_token(shape().model, spec::DType::kBf16) *
                                       static_cast<std::uint64_t>(shape().context);
    const std::uint64_t page = bed_.device().properties().page_bytes;
    const std::uint64_t half = bed_.device().properties().page_count * page / 2;
    const auto room = static_cast<std::uint64_t>(bed_.pool().free_count()) * page;
    // Beside those that hold it there is one that decodes, and pages that are not full.
    const std::uint64_t most = room / 8 * 7 / per_sequence;
    return static_cast<std::int64_t>(
        std::min(std::min(shape().handed, half) / per_sequence, most > 1 ? most - 1 : 0));
  }

  void map() {
    for (const std::int64_t count : shape().mapped) {
      if (count > bed_.pool().free_count()) {
        report_.skip("map of " + std::to_string(count), "too few free pages");
        continue;
      }
      const auto pages = must(bed_.pool().take(kKvLease, count));
      const std::size_t page = bed_.device().properties().page_bytes;
      auto window = must(memory::Window::create(bed_.device(), pages.size() * page));
      std::vector<double> maps;
      std::vector<double> unmaps;
      for (int round = 0; round <= shape().rounds; ++round) {
        maps.push_back(seconds_of([&] { must(window.map(pages, device::Access::kRead)); }));
        unmaps.push_back(seconds_of([&] { window.unmap_all(); }));
      }
      bed_.pool().put(kKvLease, pages);
      report_.row("map of " + std::to_string(count),
                  {{"map_us_per_page", 1e6 * median(maps) / static_cast<double>(count)},
                   {"unmap_us_per_page", 1e6 * median(unmaps) / static_cast<double>(count)}});
    }
  }

  Bed bed_;
  Report report_;
  Ceilings ceilings_{};
};

struct Options {
  std::vector<Shape> shapes{};
  std::uint64_t memory = 0;
  std::size_t page_bytes = 0;
};

[[noreturn]] void usage() {
  std::fprintf(
      stderr, "gpu_model [--shape llama-3-8b|qwen2.5-14b|tiny]... [--memory SIZE] [--page SIZE]\n");
  std::exit(2);
}

Options read_options(int argc, char** argv) {
  const std::vector<Shape> all{llama_3_8b(), qwen25_14b(), tiny()};
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view key = argv[i];
    if (i + 1 == argc) {
      usage();
    }
    const std::string_view value = argv[i + 1];
    if (key == "--shape") {
      const auto found = std::find_if(
          all.begin(), all.end(), [&](const Shape& shape) { return shape.name == value; });
      if (found == all.end()) {
        usage();
      }
      options.shapes.push_back(*found);
    } else if (key == "--memory") {
      options.memory = must(parse_bytes(value));
    } else if (key == "--page") {
      options.page_bytes = must(parse_bytes(value));
    } else {
      usage();
    }
  }
  if (options.shapes.empty()) {
    options.shapes.assign(all.begin(), all.begin() + 2);
  }
  return options;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  const heddle::bench::Options options = heddle::bench::read_options(argc, argv);
  for (const heddle::bench::Shape& shape : options.shapes) {
    heddle::bench::ModelBench(shape, options.memory, options.page_bytes).run();
  }
  return 0;
}
