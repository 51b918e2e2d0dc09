#pragma once

// What a GPU does at best, measured: what a model's figures are held against.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bench/gpu_bed.h"
#include "bench/gpu_report.h"
#include "bench/read_all_params.h"
#include "device/cuda/cuda_stream.h"
#include "ops/linear.h"
#include "spec/memory_needs.h"

namespace heddle::bench {

/// The image of read_all.cu, made by the build.
const device::ModuleImage& kernel_image();

/// Rates in units per second.
struct Ceilings {
  double copy = 0;  ///< Bytes, pinned host to device, in one piece.
  double read = 0;  ///< Bytes of the device's memory.
  double gemm = 0;  ///< Floating-point operations of the best bf16 product.
};

/// Measures ceilings of a bed that is loaded.
class CeilingBench {
 public:
  CeilingBench(Bed& bed, const Report& report)
      : bed_(bed),
        report_(report),
        stream_(must(bed.device().create_stream())),
        x_(must(bed.device().allocate(device::Place::kDevice, x_bytes()))),
        out_(must(bed.device().allocate(device::Place::kDevice, out_bytes()))) {
    // What is multiplied is of the weights, as zeros would cost less power.
    stream_->copy(x_.data(), bed.window().base(), std::min(x_.bytes(), bed.layout().bytes));
    must(stream_->synchronize());
  }

  Ceilings run() {
    Ceilings found{.copy = copy(), .read = read()};
    const std::int64_t n = bed_.shape().gemm;
    found.gemm = product("product, square", bed_.layout().tensors.front(), n, n, n);
    double flops = 0;
    double seconds = 0;
    for (const store::ImageTensor& tensor : bed_.layout().tensors) {
      // Of blocks there are no products in bfloat16.
      if (tensor.layer == 0 && tensor.columns > 1 && tensor.dtype == spec::DType::kBf16) {
        const std::int64_t tokens = bed_.shape().prompt;
        const double rate =
            product("product of layer 0", tensor, tokens, tensor.rows, tensor.columns);
        found.gemm = std::max(found.gemm, rate);
        flops += 2.0 * static_cast<double>(tokens * tensor.rows * tensor.columns);
        seconds += 2.0 * static_cast<double>(tokens * tensor.rows * tensor.columns) / rate;
      }
    }
    report_.row("ceilings",
                {{"copy_gb_s", 1e-9 * found.copy},
                 {"read_gb_s", 1e-9 * found.read},
                 {"gemm_tflop_s", 1e-12 * found.gemm},
                 {"layer_products_tflop_s", seconds > 0 ? 1e-12 * flops / seconds : 0.0}});
    return found;
  }

 private:
  [[nodiscard]] std::size_t x_bytes() const {
    const auto& shape = bed_.shape();
    return static_cast<std::size_t>(
               std::max(shape.gemm * shape.gemm,
                        shape.prompt * std::max(shape.model.intermediate, shape.model.hidden))) *
           2;
  }
  [[nodiscard]] std::size_t out_bytes() const {
    const auto& shape = bed_.shape();
    return static_cast<std::size_t>(std::max(
               shape.gemm * shape.gemm,
               shape.prompt * std::max(2 * shape.model.intermediate, shape.model.experts.count))) *
           4;
  }

  /// Median seconds of what is enqueued so often in a row, each.
  double time(int in_a_row, const std::function<void()>& enqueue) {
    std::vector<double> seconds;
    for (int round = 0; round <= bed_.shape().rounds; ++round) {
      const double took = seconds_of([&] {
        for (int i = 0; i < in_a_row; ++i) {
          enqueue();
        }
        must(stream_->synchronize());
      });
      if (round > 0) {
        seconds.push_back(took / in_a_row);
      }
    }
    return median(std::move(seconds));
  }

  /// The pool's first pages lie in a row, and the host's too.
  double copy() {
    const std::uint64_t bytes = std::min(bed_.shape().copied, bed_.layout().bytes);
    const double seconds = time(1, [&] {
      stream_->copy(
          bed_.device().page_address(PageId{0}), bed_.device().host_page_address(PageId{0}), bytes);
    });
    return static_cast<double>(bytes) / seconds;
  }

  /// By a kernel that only reads, the best of some numbers of blocks.
  double read() {
    const std::uint64_t bytes = std::min(bed_.shape().copied, bed_.layout().bytes) / 16 * 16;
    auto& stream = static_cast<device::CudaStream&>(*stream_);
    const ReadParams params{.data = bed_.device().page_address(PageId{0}),
                            .words = static_cast<std::int64_t>(bytes / 16),
                            .out = reinterpret_cast<std::uint32_t*>(out_.data())};
    double best = 1e9;
    for (const std::uint32_t blocks : {264U, 528U, 1056U, 4096U}) {
      best = std::min(best, time(2, [&] {
                        stream.launch({.module = &kernel_image(), .name = "heddle_bench_read"},
                                      {.grid = {blocks, 1, 1}, .block = {512, 1, 1}},
                                      params);
                      }));
    }
    return static_cast<double>(bytes) / best;
  }

  /// Operations per second of tokens x outputs x inputs with weights where `tensor` lies.
  double product(const char* what,
                 const store::ImageTensor& tensor,
                 std::int64_t tokens,
                 std::int64_t outputs,
                 std::int64_t inputs) {
    using spec::DType;
    ops::OpContext context{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
    const ops::LinearArgs args{
        .x = ops::tensor_2d<const std::byte>(x_.data(), DType::kBf16, tokens, inputs),
        .weight = ops::tensor_2d<const std::byte>(
            bed_.window().base() + tensor.offset, DType::kBf16, outputs, inputs),
        .out = ops::matrix_of(reinterpret_cast<float*>(out_.data()), tokens, outputs)};
    const double seconds = time(5, [&] { ops::linear(context, args); });
    const double rate = 2.0 * static_cast<double>(tokens * outputs * inputs) / seconds;
    report_.row(what,
                {{"tokens", static_cast<double>(tokens)},
                 {"outputs", static_cast<double>(outputs)},
                 {"inputs", static_cast<double>(inputs)},
                 {"us", 1e6 * seconds},
                 {"tflop_s", 1e-12 * rate}});
    return rate;
  }

  Bed& bed_;
  const Report& report_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer x_;
  device::Buffer out_;
};

/// Least seconds of a step of a model with a head of its own that reads all weights once, of the
/// embedding a few rows, and runs `tokens` tokens through them, of which `rows` are sampled and
/// which attend to `pairs` positions, all together; `cached` positions of KV are read.
inline double least_seconds(const Bed& bed,
                            const Ceilings& ceilings,
                            std::int64_t tokens,
                            std::int64_t rows,
                            double pairs,
                            double cached) {
  const spec::ModelSpec& model = bed.shape().model;
  const auto embedding = static_cast<double>(model.vocab * model.hidden);
  // In bfloat16 the embedding has as many bytes as it and the head together have numbers.
  const double layers = static_cast<double>(spec::parameter_count(model)) - 2 * embedding;
  const double bytes =
      static_cast<double>(bed.layout().bytes) - 2 * embedding +
      cached * static_cast<double>(spec::kv_bytes_per_token(model, spec::DType::kBf16));
  const double flops =
      2 * (layers * static_cast<double>(tokens) + embedding * static_cast<double>(rows)) +
      4 * pairs * static_cast<double>(model.heads * model.head_dim * model.layers);
  return std::max(bytes / ceilings.read, flops / ceilings.gemm);
}

}  // namespace heddle::bench
