// Whole models on a GPU beside what it does at best, all in one run: random weights in bfloat16 in
// the device's pages, in engines, without sockets and files.
//
//   gpu_model [OPTION ...]
//
//   --shape       llama-3-8b, qwen2.5-14b (these two when absent), in FP8 llama-3-8b-fp8 and, with
//                 products of FP8 on both sides, llama-3-8b-w8a8, in blocks llama-3-8b-q4_k and
//                 qwen3-30b-a3b-q4_k, or tiny and tiny-experts, for the emulated driver
//   --part        of the measurement; several by commas, or by saying it again. All when absent
//   --operations  the part of that name: what each operation of a step takes
//   --budget      seconds of the whole run: what would begin later is skipped, what would end later
//                 is given up
//   --batches     sequences that decode together: 1,32,128 when absent
//   --steps       of which a decode's figures are; --rounds of everything else
//   --memory      for pages; 85 % of what is free when absent
//   --page        size of a page, 2MiB when absent
//   --python      runs bench/gpu_transformers.py in the end; python3 when absent
//   --tunables    says what HEDDLE_TUNE_... there are, with the values of now, and ends
//
// JSON lines on standard output, a table for people on standard error. docs/guide/gpu-bench.md says
// how to read it. The host needs as much memory as the model has weights, pinned.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/test_places.h"
#include "bench/gpu_bed.h"
#include "bench/gpu_ceilings.h"
#include "bench/gpu_elastic.h"
#include "bench/gpu_operations.h"
#include "bench/gpu_options.h"
#include "bench/gpu_report.h"
#include "bench/gpu_shapes.h"
#include "bench/gpu_switch.h"

namespace heddle::bench {
namespace {

constexpr ModelId kFirst{1};
constexpr ModelId kSecond{2};

/// Most that a part may take, and a bed being made: a page of the host is written in some 100 us.
constexpr std::chrono::seconds kPartMost{120};

class ModelBench {
 public:
  ModelBench(const Shape& shape, const ModelOptions& options, Budget& budget, Watchdog& watchdog)
      : options_(options),
        budget_(budget),
        watchdog_(begun(watchdog, shape.name + ": the GPU's pages and the image")),
        bed_(shape, options.memory, options.page_bytes),
        report_(shape.name) {}

  void run() {
    const device::Properties& gpu = bed_.device().properties();
    report_.device(gpu.name);
    report_.row("memory",
                {{"page_bytes", static_cast<double>(gpu.page_bytes)},
                 {"pages", static_cast<double>(gpu.page_count)},
                 {"image_bytes", static_cast<double>(bed_.layout().bytes)}});
    const spec::ModelSpec& model = shape().model;
    report_.row("model",
                {{"hidden", static_cast<double>(model.hidden)},
                 {"intermediate", static_cast<double>(model.intermediate)},
                 {"layers", static_cast<double>(model.layers)},
                 {"heads", static_cast<double>(model.heads)},
                 {"kv_heads", static_cast<double>(model.kv_heads)},
                 {"head_dim", static_cast<double>(model.head_dim)},
                 {"vocab", static_cast<double>(model.vocab)},
                 {"prompt", static_cast<double>(shape().prompt)},
                 {"context", static_cast<double>(shape().context)}});
    if (!bed_.fits()) {
      report_.skip("everything", "the device's pages do not hold the model");
      return;
    }
    load();
    ceilings_ = CeilingBench(bed_, report_).run();
    part("load", [&] { report_loads(); });
    part("evict", [&] { evict(); });
    part("prefill", [&] { prefill(); });
    part("first_token", [&] { first_token(); });
    for (const Decoding how : {Decoding::kEnqueued, Decoding::kReplayed, Decoding::kAhead}) {
      part("decode", [&] { decode(how); });
    }
    part("busy", [&] { busy(); });
    part("operations", [&] { OperationBench(bed_, report_, ceilings_).run(); });
    part("elastic", [&] { ElasticBench(bed_, report_).run(); });
    part("switch", [&] { switch_models(); });
    part("hand_over", [&] { hand_over(); });
    part("map", [&] { map(); });
    report_.conclude();
  }

 private:
  /// How decode steps are enqueued: kernel by kernel; as a CUDA graph; and that before the step
  /// before was waited for, as a worker's engine does.
  enum class Decoding : std::uint8_t { kEnqueued, kReplayed, kAhead };

  Watchdog& begun(Watchdog& watchdog, const std::string& name) const {
    watchdog.part(name, budget_.left(kPartMost).value_or(std::chrono::seconds(1)));
    return watchdog;
  }
  template <class Run>
  void part(const char* name, const Run& run) {
    if (!options_.has(name)) {
      return;
    }
    const auto most = budget_.left(kPartMost);
    if (!most) {
      report_.skip(name, "the run's budget is spent");
      return;
    }
    watchdog_.part(shape().name + ": " + name, *most);
    run();
    watchdog_.part(shape().name + ": after " + name, kPartMost);
  }
  [[nodiscard]] const Shape& shape() const { return bed_.shape(); }

  /// Leaves it loaded: ceilings are measured with its weights.
  void load() {
    const int rounds = options_.has("load") ? shape().rounds : 1;
    for (int round = 0; round < rounds; ++round) {
      bed_.window().unmap_all();
      loads_.push_back(bed_.load());
    }
  }

  void report_loads() {
    std::vector<double> seconds;
    std::vector<double> mapping;
    for (const Bed::Loaded& load : loads_) {
      seconds.push_back(load.seconds);
      mapping.push_back(load.mapping);
    }
    const double rate = static_cast<double>(bed_.layout().bytes) / median(seconds);
    report_.row("load",
                {{"ms", 1e3 * median(seconds)},
                 {"mapping_ms", 1e3 * median(mapping)},
                 {"gb_s", 1e-9 * rate},
                 {"of_ceiling", rate / ceilings_.copy}},
                Wanted{.figure = "of_ceiling", .least = 0.95});
  }

  /// Another model takes the pages of one that is there: its window is unmapped, and then the other
  /// one is loaded; against a load onto free pages.
  void evict() {
    memory::Window other = bed_.make_window();
    std::vector<double> seconds;
    std::vector<double> unmapping;
    for (int round = 0; round < shape().rounds; ++round) {
      double unmapped = 0;
      seconds.push_back(seconds_of([&] {
        unmapped = seconds_of([&] { bed_.window().unmap_all(); });
        bed_.load(other, bed_.pages());
      }));
      unmapping.push_back(unmapped);
      other.unmap_all();
      bed_.load();
    }
    std::vector<double> alone;
    for (const Bed::Loaded& load : loads_) {
      alone.push_back(load.seconds);
    }
    report_.row("evict, then load",
                {{"ms", 1e3 * median(seconds)},
                 {"unmap_ms", 1e3 * median(unmapping)},
                 {"load_ms", 1e3 * median(alone)}});
  }

  /// Decode steps while another model is loaded, beside the same ones without.
  void busy() {
    const std::int64_t batch = shape().batches[shape().batches.size() / 2];
    Runner runner(bed_, bed_.device());
    runner.add_model(kFirst, bed_.window());
    const std::int64_t each =
        runner.engine().kv_pages_for(kFirst, shape().context + 8 * shape().steps);
    const auto image = std::ssize(bed_.pages());
    if (image + batch * each > bed_.pool().free_count()) {
      report_.skip("decode while loading", "no pages for two models and so much KV");
      return;
    }
    memory::Window other = bed_.make_window();
    const std::vector<PageId> pages = must(bed_.pool().take(kWeightsLease, image));
    std::vector<engine::SequenceId> ids;
    for (std::int64_t i = 0; i < batch; ++i) {
      ids.push_back(runner.add(kFirst, shape().context));
      runner.compute(ids.back());
    }
    std::vector<double> quiet;
    for (std::int64_t i = 0; i < 6 + shape().steps; ++i) {
      quiet.push_back(runner.step(ids, 1, true));
    }
    quiet.erase(quiet.begin(), quiet.begin() + 6);
    std::atomic<bool> over = false;
    Bed::Loaded loaded;
    std::thread loading([&] {
      loaded = bed_.load(other, pages);
      over = true;
    });
    std::vector<double> steps;
    for (std::int64_t i = 0; i < 6 * shape().steps && (!over || steps.empty()); ++i) {
      steps.push_back(runner.step(ids, 1, true));
    }
    loading.join();
    runner.step(ids, 1);
    for (const auto id : ids) {
      runner.engine().remove_sequence(id);
    }
    other.unmap_all();
    bed_.pool().put(kWeightsLease, pages);
    const double rate = static_cast<double>(bed_.layout().bytes) / loaded.seconds;
    report_.row("decode of " + std::to_string(batch) + " while loading",
                {{"ms", 1e3 * median(steps)},
                 {"largest_ms", 1e3 * *std::max_element(steps.begin(), steps.end())},
                 {"quiet_ms", 1e3 * median(quiet)},
                 {"slower", median(steps) / median(quiet)},
                 {"load_gb_s", 1e-9 * rate},
                 {"load_of_ceiling", rate / ceilings_.copy}});
  }

  /// From the word that a model whose image is in the host's memory is wanted to the first token of
  /// a prompt that waited for it: the window is mapped, the image copied, and layers run as they
  /// come. Against a copy and the prefill of such a prompt by a model that is there, one after the
  /// other.
  void first_token() {
    Runner runner(bed_, bed_.device());
    const std::int64_t prompt = shape().prompt;
    std::vector<double> alone;
    std::vector<double> seconds;
    for (int round = 0; round <= shape().rounds; ++round) {
      runner.add_model(kFirst, bed_.window());
      const auto there = runner.add(kFirst, prompt);
      const double prefill = runner.step({there}, prompt);
      runner.engine().remove_sequence(there);
      runner.engine().remove_model(kFirst);
      bed_.window().unmap_all();
      double took = 0;
      const auto tell = [&](std::uint64_t bytes) {
        runner.engine().set_image_ready(kFirst, bytes);
      };
      took = seconds_of([&] {
        runner.add_model(kFirst, bed_.window(), 0);
        const auto waiting = runner.add(kFirst, prompt);
        std::thread loading([&] { bed_.load(tell); });
        runner.step({waiting}, prompt);
        loading.join();
        runner.engine().remove_sequence(waiting);
      });
      runner.engine().remove_model(kFirst);
      if (round > 0) {
        alone.push_back(prefill);
        seconds.push_back(took);
      }
    }
    const double copy = static_cast<double>(bed_.layout().bytes) / ceilings_.copy;
    const double took = median(seconds);
    report_.row("first token of " + std::to_string(prompt) + ", loaded for it",
                {{"ms", 1e3 * took},
                 {"copy_ms", 1e3 * copy},
                 {"prefill_ms", 1e3 * median(alone)},
                 {"of_both", took / (copy + median(alone))}},
                Wanted{.figure = "of_both", .most = 1.15});
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
          {{"ms", 1e3 * took}, {"tokens_per_s", tokens / took}, {"of_ceiling", least / took}},
          chunk == prompt ? std::optional(Wanted{.figure = "of_ceiling", .least = 0.8})
                          : std::nullopt);
    }
  }

  void decode(Decoding how) {
    device::Properties properties = bed_.device().properties();
    properties.records = false;
    ShownAs unrecorded(bed_.device(), properties);
    Runner runner(
        bed_,
        how == Decoding::kEnqueued ? unrecorded : static_cast<device::Device&>(bed_.device()));
    runner.add_model(kFirst, bed_.window());
    std::vector<engine::SequenceId> ids;
    for (const std::int64_t batch : shape().batches) {
      const std::array names{", enqueued", ", replayed", ", ahead"};
      const std::string what =
          "decode of " + std::to_string(batch) + names.at(static_cast<std::size_t>(how));
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
      decode_batch(runner, {ids.begin(), ids.begin() + batch}, what, how == Decoding::kAhead);
    }
    for (const auto id : ids) {
      runner.engine().remove_sequence(id);
    }
  }

  void decode_batch(Runner& runner,
                    const std::vector<engine::SequenceId>& ids,
                    const std::string& what,
                    bool ahead) {
    // Of a CUDA graph the first step is enqueued and the second records, with either set of inputs.
    constexpr int kWarmUp = 6;
    for (int i = 0; i < kWarmUp; ++i) {
      runner.step(ids, 1, ahead);
    }
    double cached = 0;
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < shape().steps; ++i) {
      for (const auto id : ids) {
        cached += static_cast<double>(runner.known(id));
      }
      seconds.push_back(runner.step(ids, 1, ahead));
    }
    runner.step(ids, 1);  // What is ahead is taken, and nothing is any more.
    cached /= static_cast<double>(shape().steps);
    const double took = median(seconds);
    const auto batch = std::ssize(ids);
    const double least = least_seconds(bed_, ceilings_, batch, batch, cached, cached);
    report_.row(
        what,
        {{"ms", 1e3 * took},
         {"largest_ms", 1e3 * *std::max_element(seconds.begin(), seconds.end())},
         {"tokens_per_s", static_cast<double>(batch) / took},
         {"least_ms", 1e3 * least},
         {"of_ceiling", least / took}},
        ahead ? std::optional(Wanted{.figure = "of_ceiling", .least = 0.85}) : std::nullopt);
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
                 {"added_ms", 1e3 * (median(switched) - median(stayed))}},
                Wanted{.figure = "added_ms", .most = 1.0});
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
    report_.row(
        "KV handed over and back",
        {{"pages_before", static_cast<double>(pages)},
         {"pages_given", static_cast<double>(given)},
         {"gib",
          static_cast<double>(given) * static_cast<double>(bed_.device().properties().page_bytes) *
              0x1p-30},
         {"give_us", 1e6 * median(gives)},
         {"decode_ms", 1e3 * median(steps)},
         {"decode_largest_ms", 1e3 * *std::max_element(steps.begin(), steps.end())},
         {"quiet_ms", 1e3 * median(quiet)},
         {"quiet_largest_ms", 1e3 * *std::max_element(quiet.begin(), quiet.end())},
         {"largest_of_median", *std::max_element(steps.begin(), steps.end()) / median(steps)}},
        Wanted{.figure = "largest_of_median", .most = 1.1});
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

  const ModelOptions& options_;
  Budget& budget_;
  Watchdog& watchdog_;
  Bed bed_;
  Report report_;
  std::vector<Bed::Loaded> loads_{};
  Ceilings ceilings_{};
};

/// The same shape by `transformers`, in a process of its own, once the GPU's memory is free again.
void run_transformers(const Shape& shape, const std::string& python) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* const moved = std::getenv("HEDDLE_SOURCE_DIR");
  const std::string source = moved != nullptr ? moved : places::kSources;
  std::string batches;
  for (const std::int64_t batch : shape.batches) {
    batches += (batches.empty() ? "" : ",") + std::to_string(batch);
  }
  const spec::ModelSpec& model = shape.model;
  const std::string command =
      "'" + python + "' '" + source + "/bench/gpu_transformers.py' --shape " + shape.name +
      " --hidden " + std::to_string(model.hidden) + " --layers " + std::to_string(model.layers) +
      " --heads " + std::to_string(model.heads) + " --kv-heads " + std::to_string(model.kv_heads) +
      " --intermediate " + std::to_string(model.intermediate) + " --vocab " +
      std::to_string(model.vocab) + " --context " + std::to_string(shape.context) + " --prompt " +
      std::to_string(shape.prompt) + " --batches " + batches + " --steps " +
      std::to_string(shape.steps);
  std::fflush(nullptr);
  // NOLINTNEXTLINE(concurrency-mt-unsafe,cert-env33-c): one thread, a command of our own.
  if (std::system(command.c_str()) != 0) {
    Report(shape.name).skip("transformers", "its process failed");
  }
}

/// In a process of its own, if it is asked for and there is time.
void run_transformers(const Shape& shape,
                      const ModelOptions& options,
                      const Budget& budget,
                      Watchdog& watchdog) {
  if (!options.has("transformers")) {
    return;
  }
  const auto most = budget.left(std::chrono::seconds(300));
  if (!most) {
    Report(shape.name).skip("transformers", "the run's budget is spent");
    return;
  }
  watchdog.part(shape.name + ": transformers", *most);
  run_transformers(shape, options.python);
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const ModelOptions options = ModelOptionsReader().read(argc, argv);
  tell_tunables(must(heddle::read_tunables()));
  if (options.tunables) {
    return 0;
  }
  Budget budget(options.budget);
  Watchdog watchdog;
  for (const Shape& shape : options.shapes) {
    ModelBench(shape, options, budget, watchdog).run();
    run_transformers(shape, options, budget, watchdog);
  }
  return 0;
}
