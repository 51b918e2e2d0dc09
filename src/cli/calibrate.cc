#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "lab/calibration.h"
#include "lab/checkpoint_times.h"
#include "lab/co_running.h"
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

/// Engines side by side: one after the other of `others`.
Result<void> time_together(const lab::CalibrationOptions& options,
                           std::initializer_list<lab::CoRunner*> others,
                           lab::Calibration& measured) {
  for (lab::CoRunner* const other : others) {
    auto samples = lab::time_co_running(options, *other);
    if (!samples) {
      return samples.error();
    }
    std::ranges::move(*samples, std::back_inserter(measured.co_runs));
  }
  return {};
}

}  // namespace

int calibrate(const CalibrateOptions& options) {
  const auto take_device = [&options]() -> Result<lab::CalibrationOptions> {
    const Result<config::Config> config = config::load_config(options.config);
    auto chosen = config ? options_of(*config, options) : config.error();
    if (chosen) {
      run_on(chosen->cores);
    }
    return chosen;
  };
  // Other processes begin before the driver is used, and before there are threads.
  lab::CheckpointSubject subject;
  lab::CoRunner equal(take_device);
  lab::CoRunner below(take_device, lab::Standing::kBelow);
  const Result<lab::CalibrationOptions> chosen = take_device();
  if (!chosen) {
    return fail(chosen.error());
  }
  const bool bar = stderr_is_terminal();
  Result<lab::Calibration> measured = lab::calibrate(*chosen, [bar](double part) {
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
  const Result<void> together = time_together(*chosen, {&equal, &below}, *measured);
  const lab::DeviceFit fit = lab::fit_device(*measured);
  std::fputs(format_table(lab::link_table(*measured)).c_str(), stdout);
  std::printf("\n%s", format_table(lab::step_table(*measured, fit)).c_str());
  std::printf("\nsteps are fitted with an error of %.1f %%\n", 100 * fit.error);
  if (together) {
    std::printf("\n%s", format_table(lab::co_run_table(*measured, fit)).c_str());
  } else {
    std::printf("\nengines side by side: skipped: %s\n", together.error().message.c_str());
  }
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
