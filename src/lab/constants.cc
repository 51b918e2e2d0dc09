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

/// The first that runs models; there is one, where there are models to run.
const config::DeviceConfig& first_device(const LabFile& lab) {
  const std::vector<LabDevice> all = devices_of(lab.policies.front());
  return *std::ranges::find_if(all, [](const LabDevice& device) {
            return config::runs_models(*device.config);
          })->config;
}

/// As the experiment says, else measured.
Result<EngineTimes> engine_times(const LabFile& lab, const config::ModelConfig& model) {
  if (const auto said = lab.engines.find(model.id); said != lab.engines.end()) {
    return said->second;
  }
  const std::vector<LabDevice> all = devices_of(lab.policies.front());
  const auto device = std::ranges::find(
      all, model.engine->device, [](const LabDevice& each) { return each.config->name; });
  const bool accelerator = device != all.end() && device->config->kind != config::DeviceKind::kCpu;
  return time_engine(model, accelerator);
}

}  // namespace

Result<Constants> measure_constants(const LabFile& lab,
                                    const std::function<void(double)>& progress) {
  const config::Config& config = lab.policies.front().config;
  const std::int64_t batch_tokens = host::choose_batch_tokens(config);
  Constants constants;
  std::map<std::pair<std::string, spec::DType>, Measured> known;
  const std::vector<std::string> names = model_names(lab);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const config::ModelConfig& model = model_called(config, names[i]);
    if (model.engine) {
      Result<EngineTimes> times = engine_times(lab, model);
      if (!times) {
        return times.error();
      }
      constants[names[i]].engine = std::move(times).value();
      continue;
    }
    const config::DeviceConfig& device = first_device(lab);
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
