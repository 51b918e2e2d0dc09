#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "device/device.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "worker/device_executor.h"

namespace heddle::lab {

/// A device, and the model that is measured on it.
struct CalibrationOptions {
  std::vector<int> cores{};          ///< Empty: one thread, anywhere. Of CPU devices alone.
  std::optional<int> gpu{};          ///< The driver's number of the GPU; none: a CPU device.
  std::uint64_t memory = 0;          ///< Of the device [bytes].
  std::uint64_t page_bytes = 0;      ///< A power of two.
  std::uint64_t load_bandwidth = 0;  ///< Emulated link [bytes/s]; 0: none.
  Duration pace_step{};              ///< As in the configuration; 0: none.
  Duration pace_token{};
  std::string directory{};  ///< Of the model's checkpoint.
  spec::DType dtype = spec::DType::kBf16;
  /// Of a step, as a worker's; nothing longer is measured. 0: 512 on a CPU device, 2048 on a GPU.
  std::int64_t max_batch_tokens = 0;
  std::int64_t max_context = INT64_MAX;  ///< Tokens that a sequence has before; likewise.
  std::int64_t repeats = 5;              ///< Of each measurement, of which the median counts.
};

/// What `max_batch_tokens` comes to.
[[nodiscard]] std::int64_t step_tokens(const CalibrationOptions& options);

/// A device with a worker's own executor, and an image of the model in memory of the host's, from
/// where it is copied. Uses the calling thread and those of the device; of a GPU it takes the
/// memory, and pins as much of the host's as the model has. Of one thread.
class DeviceBench {
 public:
  static constexpr ModelId kServed{1};  ///< The model that steps are of.
  static constexpr ModelId kCopied{2};  ///< The same once more.

  struct Kind {
    bool records = true;       ///< Whether steps may be recorded, where the device can.
    std::uint64_t images = 2;  ///< That the memory is to hold, beside some KV.
  };

  /// kResourceExhausted where the memory is too small; else what loading the checkpoint or making
  /// the device gives.
  static Result<std::unique_ptr<DeviceBench>> create(const CalibrationOptions& options, Kind kind);
  ~DeviceBench();
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  [[nodiscard]] const spec::ModelSpec& model() const { return model_; }
  [[nodiscard]] std::uint64_t image_bytes() const { return layout_.bytes; }
  [[nodiscard]] device::Device& device() { return *device_; }
  /// The device's first pages, of which nothing is used before copy(): to be mapped and left as
  /// they are.
  [[nodiscard]] std::vector<PageId> some_pages(std::int64_t count) const;

  /// Copies the image to the device, where CUDA graphs have their pages from then on; `meanwhile`
  /// is called again and again until it is there.
  Result<Duration> copy(ModelId model, const std::function<Result<void>()>& meanwhile);
  Result<void> close(ModelId model);

  /// A sequence of kServed with a prompt of so many tokens, of which none has been read.
  Result<void> add(std::int64_t sequence, std::int64_t tokens);
  Result<void> remove(std::int64_t sequence);

  /// Reads so many tokens of a prompt, in steps as large as may be; false where there is no room.
  Result<bool> read(std::int64_t sequence, std::int64_t tokens);
  /// Adds sequences and reads their prompts; false where there is no room for them.
  Result<bool> prefill(const std::vector<std::int64_t>& sequences, std::int64_t tokens);

  /// One step of `tokens` for each of the sequences; nothing where there are too few pages.
  Result<std::optional<Duration>> step(const std::vector<std::int64_t>& sequences,
                                       std::int64_t tokens);

 private:
  class Reports;

  DeviceBench(const CalibrationOptions& options,
              spec::ModelSpec model,
              store::ImageLayout layout,
              std::unique_ptr<device::Device> device);

  /// Reads the image and makes the executor.
  Result<void> load(const store::TensorSet& tensors, std::uint64_t device_pages);
  /// Refusals become errors.
  Result<void> carry_out(core::WorkerCommand command);

  CalibrationOptions options_;
  spec::ModelSpec model_;
  store::ImageLayout layout_;
  std::unique_ptr<device::Device> device_;
  std::vector<PageId> pool_{};  ///< Of the device.
  std::vector<PageId> host_{};  ///< That the image is in.
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<worker::DeviceExecutor> executor_{};
};

}  // namespace heddle::lab
