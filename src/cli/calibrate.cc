#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "lab/calibration.h"
#include "lab/checkpoint_times.h"
#include "lab/device_fit.h"
#include "store/model_source.h"

#include <sched.h>

namespace heddle::cli {

namespace {

/// The one called `name`, or the first.
template <class Thing>
const Thing* choose(const std::vector<Thing>& things,
                    const std::string& name,
                    std::string Thing::* own_name) {
  const auto found = std::find_if(things.begin(), things.end(), [&](const Thing& thing) {
    return name.empty() || thing.*own_name == name;
  });
  return found == things.end() ? nullptr : &*found;
}

Result<lab::CalibrationOptions> options_of(const config::Config& config,
                                           const CalibrateOptions& options) {
  const config::DeviceConfig* device =
      choose(config.devices, options.device, &config::DeviceConfig::name);
  const config::ModelConfig* model = choose(config.models, options.model, &config::ModelConfig::id);
  if (device == nullptr || !config::runs_models(*device)) {
    return Error{.code = Code::kNotFound,
                 .message = options.config + ": has no device" +
                            (options.device.empty() ? "" : " \"" + options.device + "\"") +
                            " that runs models"};
  }
  if (model == nullptr || model->engine) {
    return Error{.code = Code::kNotFound,
                 .message = options.config + ": has no model of our own" +
                            (options.model.empty() ? "" : " \"" + options.model + "\"")};
  }
  const Result<std::filesystem::path> directory = store::find_model(
      model->path, store::find_places(config.directory, store::process_environment()));
  if (!directory) {
    return directory.error();
  }
  return lab::CalibrationOptions{.cores = device->cores,
                                 .gpu = device->gpu < 0 ? std::optional<int>() : device->gpu,
                                 .memory = device->memory,
                                 .page_bytes = device->page,
                                 .load_bandwidth = device->load_bandwidth,
                                 .pace_step = device->pace.step,
                                 .pace_token = device->pace.token,
                                 .directory = *directory,
                                 .dtype = model->dtype};
}

/// The worker of a CPU device runs on its cores alone.
void run_on(const std::vector<int>& cores) {
  if (cores.empty()) {
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(static_cast<std::size_t>(core), &set);
  }
  (void)::sched_setaffinity(0, sizeof set, &set);  // Else it is measured where it runs.
}

/// As entries are called: letters, digits and what is harmless beside them.
std::string entry_name(std::string text) {
  std::replace_if(
      text.begin(),
      text.end(),
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.';
      },
      '_');
  return text;
}

Result<void> write_files(const std::string& folder,
                         const std::map<std::string, std::string>& files) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  for (const auto& [name, text] : files) {
    std::ofstream stream(folder + "/" + name, std::ios::binary);
    if (!(stream << text) || !stream.flush()) {
      return Error{.code = Code::kUnavailable,
                   .message = folder + "/" + name + ": cannot be written"};
    }
  }
  return {};
}

}  // namespace

int calibrate(const CalibrateOptions& options) {
  lab::CheckpointSubject subject;  // Before the driver is used, and before there are threads.
  const Result<config::Config> config = config::load_config(options.config);
  if (!config) {
    return fail(config.error());
  }
  const Result<lab::CalibrationOptions> chosen = options_of(*config, options);
  if (!chosen) {
    return fail(chosen.error());
  }
  run_on(chosen->cores);
  const bool bar = stderr_is_terminal();
  const Result<lab::Calibration> measured = lab::calibrate(*chosen, [bar](double part) {
    if (bar) {
      show_bar("measuring", part);
    }
  });
  if (bar) {
    show_bar("", std::nullopt);
  }
  if (!measured) {
    return fail(measured.error());
  }
  const lab::DeviceFit fit = lab::fit_device(*measured);
  std::fputs(format_table(lab::link_table(*measured)).c_str(), stdout);
  std::printf("\n%s", format_table(lab::step_table(*measured, fit)).c_str());
  std::printf("\nsteps are fitted with an error of %.1f %%\n", 100 * fit.error);
  if (chosen->gpu) {
    std::printf("\n%s", format_table(lab::unrecorded_table(*measured)).c_str());
    std::printf("\n%s", format_table(lab::op_table(*measured)).c_str());
    std::printf("\n%s",
                format_table(lab::checkpoint_table(
                                 lab::time_checkpoints(subject, *chosen->gpu, chosen->memory)))
                    .c_str());
  }
  if (options.out.empty()) {
    return 0;
  }
  const std::string name = entry_name(std::filesystem::path(chosen->directory).filename().string());
  const Result<void> written = write_files(options.out, lab::simulator_files(*measured, fit, name));
  return written ? 0 : fail(written.error());
}

}  // namespace heddle::cli
