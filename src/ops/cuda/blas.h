#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
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

  /// Enqueues a product of float32 or bfloat16, as linear.h says. False, and nothing enqueued,
  /// where there is no library or it has nothing for such a product; each is logged once. A
  /// product is looked up when it comes the first time, which takes a while, and remembered. The
  /// first `kept` bytes of the stream's scratch memory are the caller's, a multiple of 256.
  bool multiply(device::CudaStream& stream, const LinearArgs& args, std::size_t kept = 0);

  /// Whether there is a library at all.
  bool available(device::CudaStream& stream) { return open_library(stream); }

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
    bool bf16 = false;
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
    bool usable = false;
    cublasLtMatmulHeuristicResult_t advice{};
  };

  static Product product_of(const LinearArgs& args, std::size_t workspace);
  bool open_library(device::CudaStream& stream);
  const Plan& plan_of(const Product& product, std::uintptr_t bias);
  Plan make_plan(const Product& product, std::uintptr_t bias);
  bool take_advice(const Product& product, Plan& plan);
  void drop(const Plan& plan);

  bool tried_ = false;
  bool told_ = false;  ///< That it has not everything.
  std::unique_ptr<BlasLibrary> library_{};
  std::map<Product, Plan> plans_{};
};

}  // namespace heddle::ops::cuda
