#pragma once

// What each operation of a step takes on a GPU: an engine whose operations are each enqueued
// between two events, without CUDA graphs.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/driver_library.h"
#include "bench/gpu_bed.h"
#include "bench/gpu_ceilings.h"
#include "bench/gpu_report.h"
#include "device/cuda/driver.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/experts.h"
#include "ops/fused.h"
#include "ops/gather_rows.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/sample.h"
#include "ops/send.h"
#include "ops/silu_mul.h"
#include "spec/block_panels.h"

namespace heddle::bench {

/// What attention of a step reads and computes: the host knows it, the arguments do not tell.
struct Attended {
  double positions = 0;  ///< Of KV that are read, over all sequences.
  double pairs = 0;      ///< Of a token and a position, over all tokens.
};

/// Of calls of one operation in one step, or of their medians over steps.
struct OperationTotal {
  std::int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< Read and written at least.
  double flops = 0;
};

/// Notes the operations of a stream by events. One at a time in a process, as kernel tables are
/// plain functions; of one thread.
class OperationLog {
 public:
  /// `model` is what the operations are of, whose products are called by its matrices.
  OperationLog(Bed& bed, double read_rate)
      : bed_(bed),
        holding_(static_cast<int>(std::clamp(
            std::ceil(kHold * read_rate / static_cast<double>(bytes_held())), 1.0, 64.0))),
        out_(must(bed.device().allocate(device::Place::kDevice, 4096))) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
    const char* const named = std::getenv("HEDDLE_CUDA_DRIVER");
    const auto library =
        must(DriverLibrary::open(named == nullptr ? device::kDriverLibrary : named));
    must(library.find("cuEventElapsedTime", elapsed_));
    current() = this;
  }
  ~OperationLog() {
    current() = nullptr;
    for (const device::CUevent event : events_) {
      (void)bed_.device().context().api().cuEventDestroy_v2(event);
    }
  }
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  /// Kernels that are noted, for an engine.
  static const ops::KernelTable& kernels() {
    static const ops::KernelTable kTable = make_table();
    return kTable;
  }

  /// What comes from now on is of a new step, which attends so.
  void begin_step(const Attended& attended) {
    attended_ = attended;
    noted_.clear();
  }

  /// Of the step that has ended, by operation; and the time from its first to its last [s].
  [[nodiscard]] std::pair<std::map<std::string, OperationTotal>, double> totals() const {
    std::map<std::string, OperationTotal> found;
    for (std::size_t i = 0; i < noted_.size(); ++i) {
      OperationTotal& total = found[noted_[i].name];
      ++total.calls;
      total.seconds += between(events_[2 * i], events_[2 * i + 1]);
      total.bytes += noted_[i].bytes;
      total.flops += noted_[i].flops;
    }
    const double all =
        noted_.empty() ? 0.0 : between(events_.front(), events_[2 * noted_.size() - 1]);
    return {std::move(found), all};
  }

 private:
  struct Noted {
    std::string name{};
    double bytes = 0;
    double flops = 0;
  };
  /// The host is to be ahead all the while [s]: what is enqueued late would count as the device's.
  static constexpr double kHold = 0.02;

  static OperationLog*& current() {
    static OperationLog* kept = nullptr;
    return kept;
  }

  [[nodiscard]] std::uint64_t bytes_held() const {
    return std::min(bed_.shape().copied, bed_.layout().bytes) / 16 * 16;
  }

  /// Keeps the stream busy with reading.
  void hold(device::CudaStream& stream) {
    const ReadParams params{.data = bed_.device().page_address(PageId{0}),
                            .words = static_cast<std::int64_t>(bytes_held() / 16),
                            .out = reinterpret_cast<std::uint32_t*>(out_.data())};
    for (int i = 0; i < holding_; ++i) {
      stream.launch({.module = &kernel_image(), .name = "heddle_bench_read"},
                    {.grid = {264, 1, 1}, .block = {512, 1, 1}},
                    params);
    }
  }

  template <class Enqueue>
  void note(device::Stream& on, Noted noted, const Enqueue& enqueue) {
    auto& stream = static_cast<device::CudaStream&>(on);
    const device::DriverApi& api = bed_.device().context().api();
    if (noted_.empty()) {
      hold(stream);
    }
    while (events_.size() < 2 * (noted_.size() + 1)) {
      device::CUevent event = nullptr;
      check(api.cuEventCreate(&event, 0));
      events_.push_back(event);
    }
    const std::size_t at = 2 * noted_.size();
    check(api.cuEventRecord(events_[at], stream.handle()));
    enqueue();
    check(api.cuEventRecord(events_[at + 1], stream.handle()));
    noted_.push_back(std::move(noted));
  }

  /// Likewise of what may say that it has done nothing: that is not noted.
  template <class Enqueue>
  bool note_if(device::Stream& on, Noted noted, const Enqueue& enqueue) {
    bool done = false;
    note(on, std::move(noted), [&] { done = enqueue(); });
    if (!done) {
      noted_.pop_back();
    }
    return done;
  }

  [[nodiscard]] double between(device::CUevent begin, device::CUevent end) const {
    float milliseconds = 0;
    check(elapsed_(&milliseconds, begin, end));
    return 1e-3 * static_cast<double>(milliseconds);
  }
  static void check(device::CUresult status) {
    if (status != device::kCudaSuccess) {
      must(Result<void>(
          Error{Code::kUnavailable, "timing operations: status " + std::to_string(status)}));
    }
  }

  static double size(const ops::ConstTensorRef& tensor) {
    if (tensor.present() && spec::is_blocks(tensor.dtype)) {
      return static_cast<double>(
          spec::matrix_bytes(tensor.dtype, tensor.shape[0], tensor.shape[1]));
    }
    double bytes = tensor.present() ? static_cast<double>(ops::dtype_size(tensor.dtype)) : 0.0;
    for (int i = 0; i < tensor.rank; ++i) {
      bytes *= static_cast<double>(tensor.shape.at(static_cast<std::size_t>(i)));
    }
    return bytes;
  }

  /// A product is called by the matrix of the model that has its shape, the first of those.
  [[nodiscard]] Noted product(const ops::LinearArgs& args) const {
    const std::int64_t outputs = args.weight.shape[0];
    const std::int64_t inputs = args.weight.shape[1];
    std::string name = std::to_string(outputs) + " x " + std::to_string(inputs);
    for (const store::ImageTensor& tensor : bed_.layout().tensors) {
      if (tensor.rows == outputs && tensor.columns == inputs) {
        const std::string known = role_name(tensor.role);
        name = known.empty() ? name : known;
        break;
      }
    }
    return {.name = std::move(name),
            .bytes = size(args.weight) + size(args.x) + size(args.out) + size(args.residual),
            .flops = 2.0 * static_cast<double>(args.x.shape[0] * outputs * inputs)};
  }
  static std::string role_name(store::Role role) {
    switch (role) {
      case store::Role::kQkv:
        return "qkv";
      case store::Role::kOut:
        return "out";
      case store::Role::kGateUp:
        return "gate_up";
      case store::Role::kDown:
        return "down";
      case store::Role::kRouter:
        return "router";
      case store::Role::kEmbedding:  // Of its shape is the head, and the embedding is no product.
      case store::Role::kHead:
        return "head";
      default:
        return "";
    }
  }
  [[nodiscard]] Noted attention(const ops::AttentionArgs& args) const {
    const auto row = static_cast<std::int64_t>(spec::kv_row_bytes(args.kv.dtype, args.kv.head_dim));
    const auto per_position = static_cast<double>(2 * args.kv.kv_heads * row);
    return {.name = "attention",
            .bytes = attended_.positions * per_position + size(args.query) + size(args.out),
            .flops = 4.0 * attended_.pairs *
                     static_cast<double>(args.query.shape[1] * args.query.shape[2])};
  }

  /// As many experts are read as their tokens can have chosen, if they agree in nothing.
  static Noted experts(const ops::ExpertsArgs& args) {
    const auto tokens = static_cast<double>(args.x.shape[0]);
    const auto active = static_cast<double>(args.chosen.shape[1]);
    const auto count = static_cast<double>(args.down.shape[0] / args.x.shape[1]);
    const double read = std::min(1.0, tokens * active / count);
    const double matrices = size(args.gate_up) + size(args.up) + size(args.down);
    return {.name = "experts",
            .bytes = read * matrices + size(args.x) + 2 * size(args.out),
            .flops =
                6.0 * tokens * active * static_cast<double>(args.x.shape[1] * args.gated.shape[1])};
  }

  static const ops::KernelTable& real() { return *ops::kernels_for(device::Kind::kCuda); }

  static ops::KernelTable make_table() {
    ops::KernelTable table = real();
    table.linear = [](device::Stream& stream, const ops::LinearArgs& args) {
      current()->note(stream, current()->product(args), [&] { real().linear(stream, args); });
    };
    table.linear_norm = [](device::Stream& stream, const ops::LinearNormArgs& args) {
      return current()->note_if(stream, current()->product(args.linear), [&] {
        return real().linear_norm(stream, args);
      });
    };
    table.linear_silu = [](device::Stream& stream, const ops::LinearSiluArgs& args) {
      return current()->note_if(stream, current()->product(args.linear), [&] {
        return real().linear_silu(stream, args);
      });
    };
    table.send = [](device::Stream& stream, const ops::SendArgs& args) {
      const auto bytes = static_cast<double>(args.bytes);
      current()->note(stream, {.name = "send", .bytes = bytes}, [&] { real().send(stream, args); });
    };
    table.choose_experts = [](device::Stream& stream, const ops::ChooseExpertsArgs& args) {
      current()->note(stream, {.name = "choose experts", .bytes = size(args.logits)}, [&] {
        real().choose_experts(stream, args);
      });
    };
    table.experts = [](device::Stream& stream, const ops::ExpertsArgs& args) {
      current()->note(stream, experts(args), [&] { real().experts(stream, args); });
    };
    table.attention = [](device::Stream& stream, const ops::AttentionArgs& args) {
      current()->note(stream, current()->attention(args), [&] { real().attention(stream, args); });
    };
    table.gather_rows = [](device::Stream& stream, const ops::GatherRowsArgs& args) {
      const double row =
          static_cast<double>(spec::row_bytes(args.table.dtype, args.table.shape[1]));
      const double bytes = size(args.out) + static_cast<double>(args.out.shape[0]) * row;
      current()->note(
          stream, {.name = "gather", .bytes = bytes}, [&] { real().gather_rows(stream, args); });
    };
    table.rms_norm = [](device::Stream& stream, const ops::RmsNormArgs& args) {
      current()->note(stream, {.name = "norm", .bytes = size(args.x) + size(args.out)}, [&] {
        real().rms_norm(stream, args);
      });
    };
    table.rope_append = [](device::Stream& stream, const ops::RopeAppendArgs& args) {
      const double kept = (size(args.key) + size(args.value)) *
                          static_cast<double>(ops::dtype_size(args.kv.dtype)) / sizeof(float);
      const double bytes = 2 * size(args.query) + size(args.key) + size(args.value) + kept;
      current()->note(
          stream, {.name = "rope", .bytes = bytes}, [&] { real().rope_append(stream, args); });
    };
    table.silu_mul = [](device::Stream& stream, const ops::SiluMulArgs& args) {
      current()->note(stream, {.name = "silu", .bytes = size(args.gate_up) + size(args.out)}, [&] {
        real().silu_mul(stream, args);
      });
    };
    table.sample = [](device::Stream& stream, const ops::SampleArgs& args) {
      current()->note(stream, {.name = "sample", .bytes = size(args.logits)}, [&] {
        real().sample(stream, args);
      });
    };
    table.penalties = [](device::Stream& stream, const ops::PenaltiesArgs& args) {
      current()->note(stream, {.name = "penalties"}, [&] { real().penalties(stream, args); });
    };
    return table;
  }

  Bed& bed_;
  int holding_;
  device::Buffer out_;
  device::CUresult (*elapsed_)(float*, device::CUevent, device::CUevent) = nullptr;
  Attended attended_{};
  std::vector<Noted> noted_{};             ///< Of this step.
  std::vector<device::CUevent> events_{};  ///< Two each, before and after; kept.
};

/// Steps of an engine, operation by operation: the median over steps of what all calls of one take.
class OperationBench {
 public:
  OperationBench(Bed& bed, const Report& report, const Ceilings& ceilings)
      : bed_(bed), report_(report), ceilings_(ceilings), log_(bed, ceilings.read) {}

  void run() {
    device::Properties properties = bed_.device().properties();
    properties.records = false;
    ShownAs unrecorded(bed_.device(), properties);
    Runner runner(bed_, unrecorded, &OperationLog::kernels());
    runner.add_model(kModel, bed_.window());
    prefill(runner);
    for (const std::int64_t batch : bed_.shape().batches) {
      decode(runner, batch);
    }
  }

 private:
  static constexpr ModelId kModel{1};
  using Totals = std::map<std::string, OperationTotal>;

  void prefill(Runner& runner) {
    const std::int64_t prompt = bed_.shape().prompt;
    const auto tokens = static_cast<double>(prompt);
    for (int round = 0; round <= bed_.shape().rounds; ++round) {
      const auto id = runner.add(kModel, prompt);
      log_.begin_step({.positions = tokens, .pairs = tokens * (tokens + 1) / 2});
      runner.step({id}, prompt);
      keep(round > 0);
      runner.engine().remove_sequence(id);
    }
    tell("prefill of " + std::to_string(prompt));
  }

  void decode(Runner& runner, std::int64_t batch) {
    const std::string what = "decode of " + std::to_string(batch);
    const std::int64_t each =
        runner.engine().kv_pages_for(kModel, bed_.shape().context + bed_.shape().rounds + 4);
    if (batch * each > bed_.pool().free_count()) {
      report_.skip(what + ", operations", "no pages for so much KV");
      return;
    }
    std::vector<engine::SequenceId> ids;
    for (std::int64_t i = 0; i < batch; ++i) {
      ids.push_back(runner.add(kModel, bed_.shape().context));
      log_.begin_step({});
      runner.compute(ids.back());
    }
    for (int round = 0; round <= bed_.shape().rounds; ++round) {
      double cached = 0;
      for (const auto id : ids) {
        cached += static_cast<double>(runner.known(id));
      }
      log_.begin_step({.positions = cached, .pairs = cached});
      runner.step(ids, 1);
      keep(round > 0);
    }
    for (const auto id : ids) {
      runner.engine().remove_sequence(id);
    }
    tell(what);
  }

  void keep(bool counts) {
    if (counts) {
      auto [totals, all] = log_.totals();
      steps_.push_back(std::move(totals));
      all_.push_back(all);
    }
  }

  void tell(const std::string& step) {
    double sum = 0;
    std::vector<std::pair<std::string, OperationTotal>> found;
    for (const auto& [name, first] : steps_.front()) {
      std::vector<double> seconds;
      for (const Totals& totals : steps_) {
        seconds.push_back(totals.at(name).seconds);
      }
      found.emplace_back(name, first);
      found.back().second.seconds = median(std::move(seconds));
      sum += found.back().second.seconds;
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.second.seconds > b.second.seconds;
    });
    const double all = median(all_);
    report_.row(
        step + ", operations",
        {{"us", 1e6 * all}, {"operations_us", 1e6 * sum}, {"between_us", 1e6 * (all - sum)}});
    for (const auto& [name, total] : found) {
      const double least = std::max(total.bytes / ceilings_.read, total.flops / ceilings_.gemm);
      report_.row(step + ", " + name,
                  {{"calls", static_cast<double>(total.calls)},
                   {"us", 1e6 * total.seconds},
                   {"share", total.seconds / sum},
                   {"gb_s", 1e-9 * total.bytes / total.seconds},
                   {"tflop_s", 1e-12 * total.flops / total.seconds},
                   {"of_ceiling", least / total.seconds}});
    }
    steps_.clear();
    all_.clear();
  }

  Bed& bed_;
  const Report& report_;
  const Ceilings& ceilings_;
  OperationLog log_;
  std::vector<Totals> steps_{};
  std::vector<double> all_{};
};

}  // namespace heddle::bench
