#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/cublaslt_api.h"
#include "ops/linear.h"

namespace heddle::ops::cuda {

/// cuBLASLt, loaded and ready for the device that is current.
class BlasLibrary {
 public:
  /// Loads the library that the environment's HEDDLE_CUBLASLT names, "none" for none, or else one
  /// of those that are usual or that pip installed (blas_places.h); not where HEDDLE_CUDA_DRIVER
  /// names another driver than the installed one, as they have their own idea of where the driver
  /// is. kUnavailable, with the reason.
  static Result<std::unique_ptr<BlasLibrary>> open();
  ~BlasLibrary();
  BlasLibrary(const BlasLibrary&) = delete;
  BlasLibrary& operator=(const BlasLibrary&) = delete;

  [[nodiscard]] const CublasLtApi& api() const { return api_; }
  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }
  /// As it was asked for: a file, or a name that the loader knows.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  BlasLibrary() = default;

  std::string name_{};
  CublasLtApi api_{};
  cublasLtHandle_t handle_ = nullptr;
};

/// The products that a stream has the library do, with what it advised for each.
class Blas {
 public:
  Blas() = default;
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas();

  /// Enqueues a product of float32 or bfloat16, as linear.h says, or of plain E4M3 numbers, which
  /// kF8 means of `x` and `weight` here, with a result in float32. False, and nothing enqueued,
  /// where there is no library or it has nothing for such a product; each is logged once. A
  /// product is looked up when it comes the first time, which takes a while, and remembered. The
  /// first `kept` bytes of the stream's scratch memory are the caller's, a multiple of 256.
  bool multiply(device::CudaStream& stream, const LinearArgs& args, std::size_t kept = 0);
  /// Whether multiply() would do it.
  bool takes(device::CudaStream& stream, const LinearArgs& args, std::size_t kept);
  /// Whether there is a library; looks for it the first time.
  bool opens(device::CudaStream& stream);

  /// Times what the library has to offer for a product that was not done so far, and does it the
  /// fastest way from then on. Writes to its `out`. Once `until` has come it tries no further way;
  /// none is left out before the first. Returns how long it takes [ms]; nothing where the library
  /// does not do it, or it was done already.
  /// @param weight  Memory like the weight's, which need not be there.
  std::optional<float> choose(device::CudaStream& stream,
                              const LinearArgs& args,
                              const std::byte* weight,
                              Instant until);
  /// Ways that choose() has timed since this was asked last.
  [[nodiscard]] std::int64_t take_timed() { return std::exchange(timed_, 0); }
  /// From now on prefers_gated() of such products of gates and ups.
  void prefer_gated(device::CudaStream& stream, const LinearArgs& args);
  /// Whether a kernel that gates at its end was found to be faster than the library.
  [[nodiscard]] bool prefers_gated(device::CudaStream& stream, const LinearArgs& args) const;
  /// Remembers for good whether heddle's own kernel does such products faster than the library.
  void settle_own(device::CudaStream& stream, const LinearArgs& args, bool faster);
  /// That; nothing where it was not found out.
  [[nodiscard]] std::optional<bool> own_is_faster(device::CudaStream& stream,
                                                  const LinearArgs& args) const;

 private:
  /// All that the advice depends on.
  struct Product {
    std::int64_t tokens = 0;
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
    std::int64_t x_stride = 0;
    std::int64_t residual_stride = 0;  ///< 0: there is none.
    std::int64_t out_stride = 0;
    std::size_t workspace = 0;  ///< It may take [bytes].
    int type = 0;               ///< Of weight and x: kBlasFloat, kBlasBf16 or kBlasE4M3.
    bool out_bf16 = false;
    bool bias = false;
    /// In bytes, powers of two up to 256: of weight, x, residual and out.
    std::array<std::uint32_t, 4> alignment{};

    friend auto operator<=>(const Product&, const Product&) = default;
  };
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t residual = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    bool described = false;
    bool usable = false;  ///< There is advice as well.
    cublasLtMatmulHeuristicResult_t advice{};
  };

  using Advice = cublasLtMatmulHeuristicResult_t;
  /// What was chosen for a product, and how long it took [ms].
  struct Choice {
    Advice advice{};
    float took = 0.0F;
  };

  /// Whether the library has such products at all.
  [[nodiscard]] static bool does(const LinearArgs& args);
  static Product product_of(const device::CudaStream& stream,
                            const LinearArgs& args,
                            std::size_t kept = 0);
  const Plan& plan_of(const Product& product, std::uintptr_t bias);
  Plan describe(const Product& product, std::uintptr_t bias);
  std::vector<Advice> advice_for(const Product& product, const Plan& plan, std::int64_t most);
  cublasStatus_t enqueue(device::CudaStream& stream,
                         const LinearArgs& args,
                         const std::byte* weight,
                         const Plan& plan,
                         const Advice& advice,
                         std::size_t kept = 0);
  void take_advice(const Product& product, Plan& plan);
  /// Logs once that the library does not do a product.
  void tell_of(const Product& product);
  void drop(const Plan& plan);

  bool tried_ = false;
  bool told_ = false;  ///< That it has not everything.
  std::unique_ptr<BlasLibrary> library_{};
  std::map<Product, Plan> plans_{};
  std::map<Product, Choice> chosen_{};
  std::set<Product> gated_{};
  std::map<Product, bool> own_{};
  std::int64_t timed_ = 0;
};

}  // namespace heddle::ops::cuda
