// What a decoder's products and draws take on a GPU, for choosing between kernels:
//
//   cuda_linear            one GPU, the first; needs about 3 GiB of it
//   cuda_linear small      shapes that the emulated driver gets through (its times mean nothing)
//
// Products: microseconds of ours and of cuBLASLt, and the bytes of weights per second that the
// better of them reads. Weights come from memory, not from a cache: each product takes others. What
// is measured is recorded and replayed, so that the host's share does not count.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "ops/bf16.h"
#include "ops/context.h"
#include "ops/cuda/blas.h"
#include "ops/linear.h"
#include "ops/log_probs.h"
#include "ops/sample.h"
#include "spec/block_panels.h"

namespace heddle {
namespace {

using device::Buffer;
using ops::DType;

constexpr std::int64_t kWeightBytes = 2LL << 30;
constexpr std::int64_t kTokensMax = 2048;
constexpr std::int64_t kOutputsMax = kTokensMax * 28672;  ///< Of a product, over all tokens.
constexpr int kRecorded = 20;
constexpr int kReplays = 5;

/// The value, or the end of the program with the reason.
template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const Result<void>& result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
}

struct Product {
  const char* what;
  std::int64_t outputs;
  std::int64_t inputs;
};

class Bench {
 public:
  explicit Bench(std::int64_t divisor) : divisor_(divisor) {
    // A stream that was told so once does without the library for good.
    // NOLINTBEGIN(concurrency-mt-unsafe)
    const char* named = std::getenv("HEDDLE_CUBLASLT");
    const std::string before = named == nullptr ? "" : named;
    ::setenv("HEDDLE_CUBLASLT", "none", 1);
    multiply(*own_, DType::kBf16, 16, 16, 16, 0, false);
    must(own_->synchronize());
    if (named == nullptr) {
      ::unsetenv("HEDDLE_CUBLASLT");
    } else {
      ::setenv("HEDDLE_CUBLASLT", before.c_str(), 1);
    }
    // NOLINTEND(concurrency-mt-unsafe)
  }

  void run() {
    fill(weights_);
    fill(x_);
    std::vector<DType> types{DType::kBf16, DType::kI8, DType::kQ40};
    if (divisor_ == 1) {
      types.insert(types.end(),
                   {DType::kQ80, DType::kQ4K, DType::kQ6K, DType::kF8, DType::kF8Both});
    }
    for (const DType dtype : types) {
      for (const Product& p : {Product{"qkv", 6144, 4096},
                               Product{"out", 4096, 4096},
                               Product{"gate_up", 28672, 4096},
                               Product{"down", 4096, 14336},
                               Product{"head", 128256, 4096}}) {
        for (const std::int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048}) {
          if (tokens * p.outputs <= kOutputsMax / divisor_) {
            product(dtype, p, tokens);
          }
        }
      }
    }
    for (const std::int64_t rows : {1, 8, 64, 256}) {
      if (rows <= 8 || divisor_ == 1) {
        draws(rows);
      }
    }
  }

 private:
  void product(DType dtype, const Product& p, std::int64_t tokens) {
    const std::int64_t outputs = p.outputs / divisor_;
    const std::int64_t block = spec::block_size(dtype).elements;
    const std::int64_t inputs = std::max<std::int64_t>(p.inputs / divisor_ / block, 1) * block;
    const auto bytes = static_cast<std::int64_t>(spec::matrix_bytes(dtype, outputs, inputs));
    const auto seconds = [&](device::CudaStream& stream, bool blas) {
      return seconds_each(stream, [&](int i) {
        const std::int64_t copies = std::max<std::int64_t>(kWeightBytes / divisor_ / bytes, 1);
        multiply(stream, dtype, tokens, outputs, inputs, i % copies * bytes, blas);
      });
    };
    const double ours = seconds(*own_, false);
    double best = ours;
    std::printf("%-8s %-8s %5lld x %6lld x %5lld  ours %9.1f us",
                std::string(spec::dtype_name(dtype)).c_str(),
                p.what,
                static_cast<long long>(tokens),
                static_cast<long long>(outputs),
                static_cast<long long>(inputs),
                1e6 * ours);
    // Blocks of many tokens are unpacked for the library.
    const bool unpacked = spec::is_blocks(dtype) && tokens > ops::unpacked_tokens();
    if (dtype == DType::kBf16 || unpacked) {
      const double theirs = seconds(*with_blas_, true);
      best = std::min(best, theirs);
      std::printf("  cuBLASLt %9.1f us", 1e6 * theirs);
    }
    std::printf("  %7.1f GB/s  %7.1f TFLOP/s\n",
                1e-9 * static_cast<double>(bytes) / best,
                2e-12 * static_cast<double>(tokens * outputs * inputs) / best);
  }

  void draws(std::int64_t rows) {
    const std::int64_t vocab = 128256 / divisor_;
    const auto logits = ops::tensor_2d<const std::byte>(out_.data(), DType::kF32, rows, vocab);
    const auto tokens = ops::tensor_1d(tokens_.data(), DType::kI32, rows);
    const std::pair<const char*, ops::SampleRow> kinds[] = {
        {"greedy", {.temperature = 0.0F}},
        {"all", {.uniform = 0.5}},
        {"top_p", {.top_p = 0.9F, .uniform = 0.5}},
        {"top_k and top_p", {.top_p = 0.9F, .top_k = 50, .uniform = 0.5}}};
    fill_logits(rows * vocab);
    for (const auto& [what, row] : kinds) {
      std::fill_n(reinterpret_cast<ops::SampleRow*>(asked_.data()), rows, row);
      const double seconds = seconds_each(*own_, [&](int) {
        ops::sample(own_context_,
                    {.logits = logits,
                     .rows = reinterpret_cast<const ops::SampleRow*>(asked_.data()),
                     .tokens = tokens});
      });
      std::printf("sample %3lld x %6lld %-16s %9.1f us\n",
                  static_cast<long long>(rows),
                  static_cast<long long>(vocab),
                  what,
                  1e6 * seconds);
    }
    std::fill_n(reinterpret_cast<ops::LogProbRow*>(asked_.data()), rows, ops::LogProbRow{0, 20});
    const double seconds = seconds_each(*own_, [&](int) {
      ops::log_probs(
          own_context_,
          {.logits = logits,
           .rows = reinterpret_cast<const ops::LogProbRow*>(asked_.data()),
           .choices = tokens,
           .tokens = reinterpret_cast<std::int32_t*>(told_.data()),
           .log_probs = reinterpret_cast<float*>(told_.data()) + rows * ops::kLogProbsWidth});
    });
    std::printf("log_probs %3lld x %6lld of 20          %9.1f us\n",
                static_cast<long long>(rows),
                static_cast<long long>(vocab),
                1e6 * seconds);
  }

  /// Numbers as a model's logits lie: about normal, of a deviation of 3.
  void fill_logits(std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = 0.0F;
      for (int j = 0; j < 4; ++j) {
        sum += static_cast<float>(rng_.below(1U << 24U)) * 0x1p-24F - 0.5F;
      }
      values.push_back(5.2F * sum);
    }
    own_->copy(out_.data(),
               reinterpret_cast<const std::byte*>(values.data()),
               values.size() * sizeof(float));
    must(own_->synchronize());
  }

  /// Bfloat16 up to 1, or int8 and blocks of all sizes: what is all zero takes less power, and less
  /// time.
  void fill(const Buffer& buffer) {
    std::vector<std::uint16_t> piece(std::min<std::size_t>(buffer.bytes() / 2, 1U << 20U));
    for (std::uint16_t& value : piece) {
      value = ops::to_bf16(static_cast<float>(rng_.below(2001)) * 1e-3F - 1.0F);
    }
    for (std::size_t at = 0; at < buffer.bytes(); at += 2 * piece.size()) {
      own_->copy(buffer.data() + at,
                 reinterpret_cast<const std::byte*>(piece.data()),
                 std::min(2 * piece.size(), buffer.bytes() - at));
    }
    must(own_->synchronize());
  }

  void multiply(device::CudaStream& stream,
                DType dtype,
                std::int64_t tokens,
                std::int64_t outputs,
                std::int64_t inputs,
                std::int64_t weight,
                bool blas) {
    const bool int8 = dtype == DType::kI8;
    const ops::LinearArgs args{
        .x = ops::tensor_2d<const std::byte>(x_.data(), DType::kBf16, tokens, inputs),
        .weight = ops::tensor_2d<const std::byte>(weights_.data() + weight, dtype, outputs, inputs),
        .scale = int8 ? ops::tensor_1d<const std::byte>(scale_.data(), DType::kF32, outputs)
                      : ops::ConstTensorRef{},
        .out = ops::tensor_2d(out_.data(), DType::kF32, tokens, outputs)};
    if (!blas || spec::is_blocks(dtype)) {
      ops::OpContext context{.stream = stream, .kernels = *ops::kernels_for(device::Kind::kCuda)};
      ops::linear(context, args);
    } else if (!stream.attachment<ops::cuda::Blas>().multiply(stream, args)) {
      std::fprintf(stderr, "cuBLASLt does not do it\n");
      std::exit(1);
    }
  }

  /// Seconds of one of kRecorded calls of enqueue(i), in the best of some replays.
  double seconds_each(device::CudaStream& stream, const std::function<void(int)>& enqueue) {
    enqueue(0);
    must(stream.synchronize());
    if (!stream.begin_capture()) {
      std::exit(1);
    }
    for (int i = 0; i < kRecorded; ++i) {
      enqueue(i);
    }
    const auto graph = must(stream.end_capture());
    double best = 1e9;
    for (int i = 0; i < kReplays; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      stream.replay(*graph);
      must(stream.synchronize());
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best / kRecorded;
  }

  Buffer memory(std::int64_t bytes, device::Place place = device::Place::kDevice) {
    return must(device_->allocate(place, static_cast<std::size_t>(bytes)));
  }

  std::int64_t divisor_;
  Rng rng_{1};
  std::unique_ptr<device::CudaDevice> device_ =
      must(device::CudaDevice::create({.bytes = 64U << 20U}));
  Buffer weights_ = memory(kWeightBytes / divisor_);
  Buffer x_ = memory(kTokensMax * 14336 * 2 / divisor_);
  Buffer out_ = memory(kOutputsMax * 4 / divisor_);
  Buffer scale_ = memory(128256LL * 4);
  Buffer tokens_ = memory(kTokensMax * 4);
  Buffer told_ = memory(kTokensMax * ops::kLogProbsWidth * 8);
  Buffer asked_ = memory(kTokensMax * 64, device::Place::kHost);
  std::unique_ptr<device::CudaStream> own_ = must(device::CudaStream::create(*device_, 0));
  std::unique_ptr<device::CudaStream> with_blas_ = must(device::CudaStream::create(*device_, 0));
  ops::OpContext own_context_{.stream = *own_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
};

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool small = argc > 1 && std::string(argv[1]) == "small";
  heddle::Bench(small ? 256 : 1).run();
  return 0;
}
