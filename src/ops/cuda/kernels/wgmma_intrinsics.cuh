#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

/// Products of warpgroups, which GPUs of 9.0 alone have (sm_90a); beside intrinsics.cuh and, as
/// there, defined once for the device and once for the emulated driver. Terms and layouts are those
/// of the PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
///
/// A warpgroup is four warps of a block, the first of them a multiple of four, all of whose threads
/// call what is here together. A product has 64 rows, sixteen of each warp; a lane holds of its
/// warp's rows what it would hold of a tile of mma_bf16(): with g = lane / 4 and t = lane % 4 is
/// d[i] columns (8 i + 2t, 8 i + 2t + 1) of row g, then of row g + 8.
///
/// Products run beside the threads: nobody reads or writes sums or operands in registers, nor
/// writes operands in shared memory, before their group was waited for.

namespace heddle::ops::cuda {

/// Whether the architecture that is compiled for has them. Where it has not, kernels that need them
/// call lacks_products().
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif

/// Loses the device: a launch that should not have been.
__device__ __forceinline__ void lacks_products() {
  __trap();
}

/// An address of shared memory as descriptors count.
__device__ __forceinline__ std::uint32_t shared_address(const std::byte* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

/// Describes a matrix of 16-bit elements in shared memory that begins at `address` and lies there
/// in atoms of eight lines of 128 bytes, from multiples of 1024 on, in which 16 bytes at bits 4..6
/// of an address are at those bits ^ bits 7..9. `stride` is the bytes from an atom to that of the
/// next eight lines, `leading` to that of the lines' next 64 elements where lines are longer.
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address,
                                                           std::uint32_t leading,
                                                           std::uint32_t stride) {
  constexpr std::uint64_t kSwizzle128 = 1;
  const auto field = [](std::uint32_t bytes) {
    return static_cast<std::uint64_t>((bytes & 0x3ffffU) >> 4U);
  };
  return field(address) | field(leading) << 16U | field(stride) << 32U | kSwizzle128 << 62U;
}
/// The same from `bytes` further on, a multiple of 16.
__device__ __forceinline__ std::uint64_t matrix_after(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<std::uint64_t>(bytes / 16);
}

/// What this thread has written to shared memory is there for products after the next barrier.
__device__ __forceinline__ void show_to_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Comes between what was done to registers of products and the products.
__device__ __forceinline__ void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Makes a group of the products since the last.
__device__ __forceinline__ void commit_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits for all groups but the kLeft newest.
template <int kLeft>
__device__ __forceinline__ void wait_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#endif
}
/// Keeps the compiler from reading sums before they were waited for; comes right after.
template <int kTiles>
__device__ __forceinline__ void settle_sums(float (&d)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) {
    asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The first operands of a product, 32 at a time, and the sums that they are.
#define HEDDLE_NAMES_0                                        \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16" \
  ",%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HEDDLE_NAMES_32                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46" \
  ",%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HEDDLE_NAMES_64                                                            \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82"   \
  ",%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101" \
  ",%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116"    \
  ",%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define HEDDLE_TILE(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define HEDDLE_TILES(d, i)                                                                \
  HEDDLE_TILE(d, i), HEDDLE_TILE(d, i + 1), HEDDLE_TILE(d, i + 2), HEDDLE_TILE(d, i + 3), \
      HEDDLE_TILE(d, i + 4), HEDDLE_TILE(d, i + 5), HEDDLE_TILE(d, i + 6), HEDDLE_TILE(d, i + 7)
// Behind them stand two descriptors, or four registers and one, and whether sums are added to.
#define HEDDLE_PRODUCT(columns, sums, factors, add) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" add          \
  ", 0;\n"                                          \
  "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" sums "}, " factors
#define HEDDLE_BOTH_SHARED ", p, 1, 1, 0, 0;\n}"
#define HEDDLE_RIGHT_TRANSPOSED ", p, 1, 1, 1;\n}"
#endif

/// d = a b, or d += a b with kAdd, for a [64, 16] and b [16, 8 kTiles] in bfloat16, both in shared
/// memory: lines are the rows of a and the columns of b.
template <bool kAdd, int kTiles>
__device__ __forceinline__ void multiply_shared(float (&d)[kTiles][4],
                                                std::uint64_t a,
                                                std::uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTiles == 8) {
    asm volatile(HEDDLE_PRODUCT("64", HEDDLE_NAMES_0, "%32, %33", "34") HEDDLE_BOTH_SHARED
                 : HEDDLE_TILES(d, 0)
                 : "l"(a), "l"(b), "n"(kAdd ? 1 : 0)
                 : "memory");
  } else {
    asm volatile(HEDDLE_PRODUCT("128", HEDDLE_NAMES_0 HEDDLE_NAMES_32, "%64, %65", "66")
                     HEDDLE_BOTH_SHARED
                 : HEDDLE_TILES(d, 0), HEDDLE_TILES(d, 8)
                 : "l"(a), "l"(b), "n"(kAdd ? 1 : 0)
                 : "memory");
  }
#endif
}

/// d += a b for a in registers, as of mma_bf16(), and b in shared memory: lines are its rows.
template <int kTiles>
__device__ __forceinline__ void multiply_own(float (&d)[kTiles][4],
                                             const std::uint32_t (&a)[4],
                                             std::uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16 || kTiles == 32);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTiles == 8) {
    asm volatile(HEDDLE_PRODUCT("64", HEDDLE_NAMES_0, "{%32, %33, %34, %35}, %36", "37")
                     HEDDLE_RIGHT_TRANSPOSED
                 : HEDDLE_TILES(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1)
                 : "memory");
  } else if constexpr (kTiles == 16) {
    asm volatile(
        HEDDLE_PRODUCT("128", HEDDLE_NAMES_0 HEDDLE_NAMES_32, "{%64, %65, %66, %67}, %68", "69")
            HEDDLE_RIGHT_TRANSPOSED
        : HEDDLE_TILES(d, 0), HEDDLE_TILES(d, 8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1)
        : "memory");
  } else {
    asm volatile(HEDDLE_PRODUCT("256",
                                HEDDLE_NAMES_0 HEDDLE_NAMES_32 HEDDLE_NAMES_64,
                                "{%128, %129, %130, %131}, %132",
                                "133") HEDDLE_RIGHT_TRANSPOSED
                 : HEDDLE_TILES(d, 0), HEDDLE_TILES(d, 8), HEDDLE_TILES(d, 16), HEDDLE_TILES(d, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1)
                 : "memory");
  }
#endif
}

}  // namespace heddle::ops::cuda
