#include "ops/add_low_rank.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {
namespace {

/// Outputs that stay with one thread: of A one tile of registers' worth and cache lines of what it
/// gives; of B some blocks of rows, as its rows are short.
constexpr std::int64_t kGrainA = 16;
constexpr std::int64_t kGrainB = 384;
/// Tiles of so few tokens are packed by one thread: it is done before another is awake.
constexpr std::int64_t kFewTokens = 32;

/// Tokens that are packed together, all of one group.
struct Tile {
  const LowRankRows* rows = nullptr;
  std::int64_t first = 0;  ///< Of the group's.
  std::int64_t tokens = 0;
  std::byte* packed = nullptr;
};

/// A pair with the tokens that go through it, and what A gives for them.
struct Product {
  const LowRankRows* rows = nullptr;
  const LowRankPair* pair = nullptr;
  const std::byte* packed = nullptr;  ///< Its tokens.
  float* inner = nullptr;             ///< [rows, rank]
  std::byte* narrow = nullptr;        ///< The same as B takes it,
  std::byte* packed_inner = nullptr;  ///< and packed.
};

/// Outputs [begin, begin + count) of one of the matrices of a product.
struct Unit {
  const Product* product = nullptr;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

std::int64_t tiles_of(std::int64_t tokens) {
  return (tokens + kPackTokens - 1) / kPackTokens;
}

/// Some groups, of which as many tiles are packed at once as there is memory for.
class Wave {
 public:
  Wave(const AddLowRankArgs& args, const LinearKernel& kernel) : args_(args), kernel_(kernel) {}

  /// Whether there is room for the group beside those that are there.
  [[nodiscard]] bool takes(const LowRankRows& rows) const {
    return tiles_ == 0 || tiles_ + tiles_of(rows.rows) <= tiles_of(args_.most_tokens);
  }
  void add(const LowRankRows& rows) {
    groups_.push_back(&rows);
    tiles_ += tiles_of(rows.rows);
    tokens_ += rows.rows;
  }
  void run(device::CpuStream& stream, device::ThreadPool& pool);

 private:
  [[nodiscard]] std::int64_t inputs() const { return args_.x.shape[1]; }
  void lay_out(device::CpuStream& stream);
  void pack(device::ThreadPool& pool) const;
  void multiply_a(device::ThreadPool& pool) const;
  void pack_inner(device::ThreadPool& pool) const;
  void multiply_b(device::ThreadPool& pool) const;

  const AddLowRankArgs& args_;
  const LinearKernel& kernel_;
  std::vector<const LowRankRows*> groups_{};
  std::int64_t tiles_ = 0;
  std::int64_t tokens_ = 0;
  std::vector<Tile> packs_{};
  std::vector<Product> products_{};
};

/// Says where everything is that the wave makes.
void Wave::lay_out(device::CpuStream& stream) {
  const std::int64_t token = kernel_.token_bytes(inputs());
  std::int64_t bytes = tiles_ * kPackTokens * token;
  for (const LowRankRows* rows : groups_) {
    for (const LowRankPair& pair : rows->pairs) {
      const std::int64_t rank = pair.a.shape[0];
      bytes += tiles_of(rows->rows) * kPackTokens *
               (kernel_.token_bytes(rank) + 2 * rank * static_cast<std::int64_t>(sizeof(float)));
    }
  }
  std::byte* next = stream.scratch(static_cast<std::size_t>(bytes));
  const auto take = [&next](std::int64_t size) { return std::exchange(next, next + size); };
  for (const LowRankRows* rows : groups_) {
    const std::int64_t padded = tiles_of(rows->rows) * kPackTokens;
    std::byte* const packed = take(padded * token);
    for (std::int64_t first = 0; first < rows->rows; first += kPackTokens) {
      packs_.push_back({.rows = rows,
                        .first = first,
                        .tokens = std::min(kPackTokens, rows->rows - first),
                        .packed = packed + first * token});
    }
    for (const LowRankPair& pair : rows->pairs) {
      const std::int64_t rank = pair.a.shape[0];
      const std::int64_t floats = padded * rank * static_cast<std::int64_t>(sizeof(float));
      std::byte* const inner = take(floats);
      products_.push_back({.rows = rows,
                           .pair = &pair,
                           .packed = packed,
                           .inner = reinterpret_cast<float*>(inner),
                           .narrow = args_.x.dtype == DType::kF32 ? inner : take(floats),
                           .packed_inner = take(padded * kernel_.token_bytes(rank))});
    }
  }
}

void Wave::pack(device::ThreadPool& pool) const {
  const std::int64_t element = dtype_size(args_.x.dtype);
  const std::int64_t grain = tokens_ <= kFewTokens ? tiles_ : 1;
  pool.parallel_for(tiles_, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Tile& tile = packs_[static_cast<std::size_t>(i)];
      const std::int64_t row = tile.rows->first + tile.first;
      kernel_.pack({.x = args_.x.data + row * args_.x.stride[0] * element,
                    .x_stride = args_.x.stride[0],
                    .tokens = tile.tokens,
                    .inputs = inputs(),
                    .out = tile.packed});
    }
  });
}

/// Units of one of the matrices of all products, none of more than `grain` outputs.
template <class Outputs>
std::vector<Unit> units_of(const std::vector<Product>& products,
                           std::int64_t grain,
                           const Outputs& outputs) {
  std::vector<Unit> units;
  for (const Product& product : products) {
    const std::int64_t all = outputs(*product.pair);
    for (std::int64_t begin = 0; begin < all; begin += grain) {
      units.push_back({&product, begin, std::min(grain, all - begin)});
    }
  }
  return units;
}

void Wave::multiply_a(device::ThreadPool& pool) const {
  const auto units =
      units_of(products_, kGrainA, [](const LowRankPair& pair) { return pair.a.shape[0]; });
  const std::int64_t element = dtype_size(args_.x.dtype);
  const std::int64_t row_bytes = inputs() * element;
  pool.parallel_for(std::ssize(units), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Unit& unit = units[static_cast<std::size_t>(i)];
      const Product& product = *unit.product;
      kernel_.multiply({.x = args_.x.data + product.rows->first * args_.x.stride[0] * element,
                        .x_stride = args_.x.stride[0],
                        .packed = product.packed,
                        .weight = product.pair->a.data + unit.begin * row_bytes,
                        .out = product.inner + unit.begin,
                        .out_stride = product.pair->a.shape[0],
                        .tokens = product.rows->rows,
                        .outputs = unit.count,
                        .inputs = inputs()});
    }
  });
}

/// Rounds and packs what A gave for a tile of tokens.
void pack_inner_tile(const Product& product,
                     std::int64_t first,
                     DType dtype,
                     const LinearKernel& kernel) {
  const std::int64_t rank = product.pair->a.shape[0];
  const std::int64_t tokens = std::min(kPackTokens, product.rows->rows - first);
  std::byte* const narrow = product.narrow + first * rank * dtype_size(dtype);
  if (dtype == DType::kBf16) {
    simd_kernels().rescale(
        {.x = product.inner + first * rank, .out = narrow, .bf16 = true, .n = tokens * rank});
  }
  kernel.pack({.x = narrow,
               .x_stride = rank,
               .tokens = tokens,
               .inputs = rank,
               .out = product.packed_inner + first * kernel.token_bytes(rank)});
}

void Wave::pack_inner(device::ThreadPool& pool) const {
  const std::int64_t grain = tokens_ <= kFewTokens ? std::ssize(products_) : 1;
  pool.parallel_for(std::ssize(products_), grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Product& product = products_[static_cast<std::size_t>(i)];
      for (std::int64_t first = 0; first < product.rows->rows; first += kPackTokens) {
        pack_inner_tile(product, first, args_.x.dtype, kernel_);
      }
    }
  });
}

void Wave::multiply_b(device::ThreadPool& pool) const {
  const auto units =
      units_of(products_, kGrainB, [](const LowRankPair& pair) { return pair.b.shape[0]; });
  const std::int64_t stride = args_.out.stride[0];
  pool.parallel_for(std::ssize(units), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Unit& unit = units[static_cast<std::size_t>(i)];
      const Product& product = *unit.product;
      const std::int64_t rank = product.pair->b.shape[1];
      float* const out =
          args_.out.as<float>() + product.rows->first * stride + product.pair->first + unit.begin;
      kernel_.multiply(
          {.x = product.narrow,
           .x_stride = rank,
           .packed = product.packed_inner,
           .weight = product.pair->b.data + unit.begin * rank * dtype_size(args_.x.dtype),
           .residual = out,
           .residual_stride = stride,
           .out = out,
           .out_stride = stride,
           .tokens = product.rows->rows,
           .outputs = unit.count,
           .inputs = rank});
    }
  });
}

void Wave::run(device::CpuStream& stream, device::ThreadPool& pool) {
  lay_out(stream);
  pack(pool);
  multiply_a(pool);
  pack_inner(pool);
  multiply_b(pool);
}

}  // namespace

void add_low_rank(device::Stream& stream, AddLowRankArgs given) {
  device::CpuStream& cpu = cpu_stream(stream);
  cpu.enqueue([args = std::move(given), &cpu](device::ThreadPool& pool) {
    const LinearKernel& kernel =
        args.x.dtype == DType::kBf16 ? simd_kernels().linear_bf16 : simd_kernels().linear_f32;
    for (auto next = args.rows.begin(); next != args.rows.end();) {
      Wave wave(args, kernel);
      for (; next != args.rows.end() && wave.takes(*next); ++next) {
        wave.add(*next);
      }
      wave.run(cpu, pool);
    }
  });
}

}  // namespace heddle::ops::cpu
