// Attention and the operations that move rows on a GPU, each recorded many times over and run
// again, so that the host's share does not count; the median of some runs. What to hold them
// against: the memory's bandwidth (decode, rows) and the tensor cores' rate (prefill), of the
// vendor's data sheet.
//
//   cuda_ops            one GPU, the first; needs about 20 GiB of it
//   cuda_ops prompts    attention of prompts alone
//   cuda_ops small      shapes that the emulated driver gets through (its times mean nothing)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "device/cuda/cuda_device.h"
#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/bf16.h"
#include "ops/experts.h"
#include "ops/gather_rows.h"
#include "ops/gelu_mul.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/silu_mul.h"
#include "spec/block_panels.h"

namespace heddle {
namespace {

using ops::ConstTensorRef;
using ops::DType;
using ops::TensorRef;

/// Heads of a model.
struct Heads {
  const char* name;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
};
constexpr Heads kHeads[] = {{"8B (32/8/128)", 32, 8, 128}, {"1B (32/8/64)", 32, 8, 64}};
constexpr std::int64_t kBlockTokens = 16;

/// Memory of the device, full of numbers around zero.
class Numbers {
 public:
  Numbers(device::CudaDevice& device, device::Stream& stream, DType dtype, std::int64_t n)
      : dtype_(dtype), memory_(make(device, static_cast<std::size_t>(n * ops::dtype_size(dtype)))) {
    constexpr std::size_t kPiece = std::size_t{1} << 20U;
    const device::Buffer piece = device.allocate(device::Place::kHost, kPiece).value();
    Rng rng(1);
    for (std::size_t i = 0; i < kPiece; i += static_cast<std::size_t>(ops::dtype_size(dtype))) {
      const float value = static_cast<float>(rng.below(2001)) * 1e-3F - 1.0F;
      const std::uint16_t half = ops::to_bf16(value);
      if (dtype == DType::kF32) {
        std::memcpy(piece.data() + i, &value, sizeof(value));
      } else {
        std::memcpy(piece.data() + i, &half, sizeof(half));
      }
    }
    for (std::size_t at = 0; at < memory_.bytes(); at += kPiece) {
      stream.copy(memory_.data() + at, piece.data(), std::min(kPiece, memory_.bytes() - at));
    }
    HEDDLE_CHECK(stream.synchronize());
  }

  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] TensorRef matrix(std::int64_t rows, std::int64_t columns) const {
    return ops::tensor_2d(memory_.data(), dtype_, rows, columns);
  }
  [[nodiscard]] TensorRef heads(std::int64_t rows, std::int64_t count, std::int64_t dim) const {
    return ops::heads_of(matrix(rows, count * dim), 0, count, dim);
  }

 private:
  static device::Buffer make(device::CudaDevice& device, std::size_t bytes) {
    return device.allocate(device::Place::kDevice, bytes).value();
  }

  DType dtype_;
  device::Buffer memory_;
};

/// Integers on the device.
class Integers {
 public:
  Integers(device::CudaDevice& device,
           device::Stream& stream,
           const std::vector<std::int32_t>& values)
      : memory_(device.allocate(device::Place::kDevice, values.size() * 4).value()),
        count_(static_cast<std::int64_t>(values.size())) {
    stream.copy(memory_.data(),
                reinterpret_cast<const std::byte*>(values.data()),  // Not pinned: copied at once.
                values.size() * 4);
    HEDDLE_CHECK(stream.synchronize());
  }
  [[nodiscard]] ConstTensorRef vector() const {
    return ops::tensor_1d(static_cast<const std::byte*>(memory_.data()), DType::kI32, count_);
  }
  [[nodiscard]] ConstTensorRef matrix(std::int64_t rows) const {
    return ops::tensor_2d(
        static_cast<const std::byte*>(memory_.data()), DType::kI32, rows, count_ / rows);
  }

 private:
  device::Buffer memory_;
  std::int64_t count_;
};

class Bench {
 public:
  explicit Bench(bool small)
      : small_(small),
        device_(device::CudaDevice::create({.bytes = std::uint64_t{64} << 20U}).value()),
        stream_(device_->create_stream().value()),
        context_{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)} {}

  void run() {
    for (const Heads& heads : kHeads) {
      for (const std::int64_t context : sizes({512, 4096, 32768}, {40})) {
        for (const std::int64_t batch : sizes({1, 8, 32, 128}, {2})) {
          attend(heads, DType::kBf16, batch, 1, context);
        }
      }
    }
    run_prompts();
    attend(kHeads[0], DType::kF32, small_ ? 2 : 8, 1, small_ ? 40 : 4096);
    attend(kHeads[0], DType::kF32, 1, small_ ? 20 : 512, 0);
    for (const std::int64_t tokens : sizes({1, 32, 2048}, {3})) {
      rows(tokens);
    }
    for (const DType dtype : {DType::kBf16, DType::kQ4K}) {
      for (const std::int64_t tokens : sizes({1, 8, 32, 128, 512, 2048}, {3})) {
        mix(dtype, tokens);
      }
    }
  }

  void run_prompts() {
    for (const Heads& heads : kHeads) {
      for (const std::int64_t context : sizes({0, 8192}, {40})) {
        for (const std::int64_t tokens : sizes({16, 128, 512, 2048, 8192}, {20})) {
          attend(heads, DType::kBf16, 1, tokens, context);
        }
      }
    }
  }

  void print_device() const { std::printf("%s\n", device_->properties().name.c_str()); }

 private:
  [[nodiscard]] std::vector<std::int64_t> sizes(std::vector<std::int64_t> all,
                                                std::vector<std::int64_t> few) const {
    return small_ ? few : all;
  }

  /// Seconds that `enqueue` takes on the device, of many in a row.
  double measure(const std::function<void()>& enqueue) {
    const int repeats = small_ ? 2 : 20;
    enqueue();
    HEDDLE_CHECK(stream_->synchronize());
    HEDDLE_CHECK(stream_->begin_capture());
    for (int i = 0; i < repeats; ++i) {
      enqueue();
    }
    const auto graph = stream_->end_capture();
    HEDDLE_CHECK(graph.has_value());
    std::vector<double> seconds;
    for (int i = 0; i < (small_ ? 1 : 7); ++i) {
      const auto before = std::chrono::steady_clock::now();
      stream_->replay(**graph);
      HEDDLE_CHECK(stream_->synchronize());
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - before;
      seconds.push_back(passed.count() / repeats);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

  /// `batch` sequences with `fresh` tokens each after `context` cached ones.
  void attend(const Heads& heads,
              DType dtype,
              std::int64_t batch,
              std::int64_t fresh,
              std::int64_t context) {
    const std::int64_t tokens = batch * fresh;
    const std::int64_t blocks = (context + fresh + kBlockTokens - 1) / kBlockTokens;
    const std::int64_t half = heads.kv_heads * kBlockTokens * heads.head_dim;  // Elements.
    std::vector<std::int32_t> table(static_cast<std::size_t>(batch * blocks));
    std::iota(table.begin(), table.end(), 0);
    Rng rng(7);
    for (std::size_t i = table.size(); i > 1; --i) {
      std::swap(table[i - 1], table[rng.below(i)]);
    }
    std::vector<std::int32_t> begin;
    for (std::int64_t s = 0; s <= batch; ++s) {
      begin.push_back(static_cast<std::int32_t>(s * fresh));
    }
    const Numbers cache(*device_, *stream_, dtype, batch * blocks * 2 * half);
    const Numbers query(*device_, *stream_, DType::kF32, tokens * heads.heads * heads.head_dim);
    const Numbers out(*device_, *stream_, DType::kBf16, tokens * heads.heads * heads.head_dim);
    const Integers table_on(*device_, *stream_, table);
    const Integers begin_on(*device_, *stream_, begin);
    const Integers first_on(*device_,
                            *stream_,
                            std::vector<std::int32_t>(static_cast<std::size_t>(batch),
                                                      static_cast<std::int32_t>(context)));
    const ops::AttentionArgs args{
        .rows = {.begin = begin_on.vector(), .first_position = first_on.vector()},
        .query = query.heads(tokens, heads.heads, heads.head_dim),
        .kv = {.base = cache.data(),
               .block_bytes = 2 * half * ops::dtype_size(dtype),
               .block_tokens = kBlockTokens,
               .key_offset = 0,
               .value_offset = half * ops::dtype_size(dtype),
               .kv_heads = heads.kv_heads,
               .head_dim = heads.head_dim,
               .dtype = dtype,
               .table = table_on.matrix(batch)},
        .scale = 0.1F,
        .out = out.heads(tokens, heads.heads, heads.head_dim)};
    const double seconds = measure([&] { ops::attention(context_, args); });
    const auto kv_bytes = static_cast<double>(batch * (context + fresh) * 2 * half / kBlockTokens *
                                              ops::dtype_size(dtype));
    const double pairs = static_cast<double>(tokens) *
                         (static_cast<double>(context) + static_cast<double>(fresh + 1) / 2.0);
    std::printf("attention  %-14s %s %4ld x %5ld after %5ld %10.1f us %8.1f GB/s %8.2f TFLOP/s\n",
                heads.name,
                dtype == DType::kF32 ? "f32 " : "bf16",
                static_cast<long>(batch),
                static_cast<long>(fresh),
                static_cast<long>(context),
                seconds * 1e6,
                kv_bytes / seconds * 1e-9,
                4e-12 * pairs * static_cast<double>(heads.heads * heads.head_dim) / seconds);
  }

  /// The operations that move rows, at the widths of an 8B model.
  void rows(std::int64_t tokens) {
    constexpr std::int64_t kColumns = 4096;
    constexpr std::int64_t kInner = 14336;
    const Numbers x(*device_, *stream_, DType::kF32, tokens * kColumns);
    const Numbers half(*device_, *stream_, DType::kBf16, tokens * kInner);
    const Numbers wide(*device_, *stream_, DType::kF32, tokens * 2 * kInner);
    const Numbers weight(*device_, *stream_, DType::kF32, kColumns);
    const Numbers embedding(*device_, *stream_, DType::kBf16, 1000 * kColumns);
    const Integers ids(
        *device_, *stream_, std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 500));
    const auto report = [&](const char* what, std::int64_t bytes, const auto& enqueue) {
      const double seconds = measure(enqueue);
      std::printf("%-11s %5ld tokens %10.1f us %8.1f GB/s\n",
                  what,
                  static_cast<long>(tokens),
                  seconds * 1e6,
                  static_cast<double>(bytes) / seconds * 1e-9);
    };
    report("rms_norm", tokens * kColumns * 6, [&] {
      ops::rms_norm(context_,
                    {.x = x.matrix(tokens, kColumns),
                     .weight = ops::tensor_1d(weight.data(), DType::kF32, kColumns),
                     .out = half.matrix(tokens, kColumns)});
    });
    report("silu_mul", tokens * kInner * 10, [&] {
      ops::silu_mul(
          context_,
          {.gate_up = wide.matrix(tokens, 2 * kInner), .out = half.matrix(tokens, kInner)});
    });
    report("gelu_mul", tokens * kInner * 10, [&] {
      ops::gelu_mul(
          context_,
          {.gate_up = wide.matrix(tokens, 2 * kInner), .out = half.matrix(tokens, kInner)});
    });
    report("add_norm", tokens * kColumns * 14, [&] {
      const ops::ConstTensorRef scale = ops::tensor_1d(weight.data(), DType::kF32, kColumns);
      ops::add_norm(context_,
                    {.x = wide.matrix(tokens, kColumns),
                     .weight = scale,
                     .sum = x.matrix(tokens, kColumns),
                     .next_weight = scale,
                     .next = half.matrix(tokens, kColumns)});
    });
    append(tokens, report);
    report("gather", tokens * kColumns * 6, [&] {
      ops::gather_rows(context_,
                       {.table = embedding.matrix(1000, kColumns),
                        .rows = ids.vector(),
                        .out = x.matrix(tokens, kColumns)});
    });
  }

  /// A layer's experts of a model of 30B, of which a token takes eight by chance.
  void mix(DType dtype, std::int64_t tokens) {
    const std::int64_t count = small_ ? 4 : 128;
    const std::int64_t active = small_ ? 2 : 8;
    const std::int64_t hidden = small_ ? 256 : 2048;
    const std::int64_t width = small_ ? 256 : 768;
    Rng rng(5);
    std::vector<std::int32_t> chosen;
    std::vector<bool> used(static_cast<std::size_t>(count));
    for (std::int64_t token = 0; token < tokens; ++token) {
      // Neighbours, so that they are different and ascend.
      const auto first =
          static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(count - active + 1)));
      for (std::int32_t i = 0; i < active; ++i) {
        chosen.push_back(first + i);
        used[static_cast<std::size_t>(first + i)] = true;
      }
    }
    const auto bytes = [&](std::int64_t rows, std::int64_t columns) {
      return static_cast<std::int64_t>(spec::matrix_bytes(dtype, rows, columns));
    };
    const std::int64_t in = bytes(count * 2 * width, hidden);
    const std::int64_t out = bytes(count * hidden, width);
    const Numbers gate_up(*device_, *stream_, DType::kBf16, in / 2);
    const Numbers down(*device_, *stream_, DType::kBf16, out / 2);
    const Numbers x(*device_, *stream_, DType::kBf16, tokens * hidden);
    const Numbers gated(*device_, *stream_, DType::kBf16, tokens * width);
    const Numbers sums(*device_, *stream_, DType::kF32, tokens * std::max(hidden, 2 * width));
    const Numbers weights(*device_, *stream_, DType::kF32, tokens * active);
    const Integers chosen_on(*device_, *stream_, chosen);
    const ops::ExpertsArgs args{
        .x = x.matrix(tokens, hidden),
        .chosen = chosen_on.matrix(tokens),
        .weights = weights.matrix(tokens, active),
        .gate_up =
            ops::tensor_2d<const std::byte>(gate_up.data(), dtype, count * 2 * width, hidden),
        .down = ops::tensor_2d<const std::byte>(down.data(), dtype, count * hidden, width),
        .rows = x.matrix(tokens, hidden),
        .in = sums.matrix(tokens, 2 * width),
        .gated = gated.matrix(tokens, width),
        .product = sums.matrix(tokens, hidden),
        .out = sums.matrix(tokens, hidden)};
    const double seconds = measure([&] { ops::experts(context_, args); });
    const auto read = static_cast<double>(std::count(used.begin(), used.end(), true)) *
                      static_cast<double>(in + out) / static_cast<double>(count);
    std::printf("experts     %-8s %5ld tokens %10.1f us %8.1f GB/s %8.2f TFLOP/s\n",
                std::string(spec::dtype_name(dtype)).c_str(),
                static_cast<long>(tokens),
                seconds * 1e6,
                read / seconds * 1e-9,
                6e-12 * static_cast<double>(tokens * active * hidden * width) / seconds);
  }

  /// Queries, keys and values of a sequence that begins, with the heads of an 8B model.
  template <class Report>
  void append(std::int64_t tokens, const Report& report) {
    const auto& [name, heads, kv_heads, dim] = kHeads[0];
    const std::int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    const std::int64_t half = kv_heads * kBlockTokens * dim * 2;  // Bytes.
    const std::int64_t columns = (heads + 2 * kv_heads) * dim;
    std::vector<std::int32_t> table(static_cast<std::size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    const Numbers cache(*device_, *stream_, DType::kBf16, blocks * half);
    const Numbers qkv(*device_, *stream_, DType::kF32, tokens * columns);
    const Numbers turns(*device_, *stream_, DType::kF32, tokens * dim);
    const Integers table_on(*device_, *stream_, table);
    const Integers begin_on(*device_, *stream_, {0, static_cast<std::int32_t>(tokens)});
    const Integers first_on(*device_, *stream_, {0});
    const TensorRef all = qkv.matrix(tokens, columns);
    const ops::RopeAppendArgs args{
        .rows = {.begin = begin_on.vector(), .first_position = first_on.vector()},
        .cos_sin = turns.matrix(tokens, dim),
        .query = ops::heads_of(all, 0, heads, dim),
        .key = ops::heads_of(all, heads * dim, kv_heads, dim),
        .value = ops::heads_of(all, (heads + kv_heads) * dim, kv_heads, dim),
        .kv = {.base = cache.data(),
               .block_bytes = 2 * half,
               .block_tokens = kBlockTokens,
               .key_offset = 0,
               .value_offset = half,
               .kv_heads = kv_heads,
               .head_dim = dim,
               .dtype = DType::kBf16,
               .table = table_on.matrix(1)}};
    const std::int64_t moved = columns * 4 + dim * 4 + heads * dim * 4 + 2 * kv_heads * dim * 2;
    report("rope_append", tokens * moved, [&] { ops::rope_append(context_, args); });
  }

  bool small_;
  std::unique_ptr<device::CudaDevice> device_;
  std::unique_ptr<device::Stream> stream_;
  ops::OpContext context_;
};

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  heddle::Bench bench(what == "small");
  bench.print_device();
  if (what == "prompts") {
    bench.run_prompts();
  } else {
    bench.run();
  }
  return 0;
}
