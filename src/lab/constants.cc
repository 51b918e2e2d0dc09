#include "lab/constants.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "agent/host_model.h"
#include "host/opened_model.h"

namespace heddle::lab {

namespace {

/// Images for which a device has room when it is measured: two, a workspace, and KV.
constexpr std::uint64_t kRoom = 8;

}  // namespace

Result<Constants> measure_constants(const LabFile& lab,
                                    const std::function<void(double)>& progress) {
  const config::Config& config = lab.policies.front().config;
  const config::DeviceConfig& device = *devices_of(lab.policies.front()).front().config;
  const std::int64_t batch_tokens = host::choose_batch_tokens(config);
  Constants constants;
  std::map<std::pair<std::string, spec::DType>, Measured> known;
  const std::vector<std::string> names = model_names(lab);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const config::ModelConfig& model = model_called(config, names[i]);
    const spec::DType dtype = model.dtype;
    const auto key = std::pair(model.path, dtype);
    if (!known.contains(key)) {
      const Result<agent::HostModel> host =
          agent::open_host_model(model.path,
                                 config.directory,
                                 dtype,
                                 {.page_bytes = device.page, .max_batch_tokens = batch_tokens});
      if (!host) {
        return host.error();
      }
      // Without its pace, which is known, and which a step of two models keeps but once.
      Result<Calibration> measured =
          calibrate({.cores = device.cores,
                     .gpu = device.gpu < 0 ? std::optional<int>() : device.gpu,
                     // Measuring takes room that the experiment need not have.
                     .memory = std::max(device.memory, kRoom * host->image_bytes),
                     .page_bytes = device.page,
                     .load_bandwidth = device.load_bandwidth,
                     .directory = host->directory.string(),
                     .dtype = dtype},
                    [&](double part) {
                      progress((static_cast<double>(i) + part) / static_cast<double>(names.size()));
                    });
      if (!measured) {
        return measured.error();
      }
      const DeviceFit fit = fit_device(*measured);
      known[key] = {.calibration = std::move(measured).value(), .fit = fit};
    }
    constants[names[i]] = known.at(key);
    if (model.tensor_parallel > 1) {
      const Result<ExchangeTimes> exchange = time_exchanges(model.tensor_parallel);
      if (!exchange) {
        return exchange.error();
      }
      constants[names[i]].exchange = *exchange;
    }
  }
  return constants;
}

}  // namespace heddle::lab
