#include "lab/prediction.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "agent/agent.h"
#include "agent/host_model.h"
#include "base/metrics.h"
#include "gateway/gateway_metrics.h"
#include "host/opened_model.h"
#include "host/setup.h"
#include "lab/shots.h"
#include "manager/model_registry.h"
#include "manager/setup.h"
#include "store/image_layout.h"
#include "twin/twin.h"

namespace heddle::lab {

namespace {

/// Images for which a device has room when it is measured: two, a workspace, and KV.
constexpr std::uint64_t kRoom = 8;

constexpr HostId kHost{0};

const config::ModelConfig& model_called(const config::Config& config, const std::string& name) {
  return *std::find_if(config.models.begin(), config.models.end(), [&](const auto& model) {
    return model.id == name;
  });
}

twin::TwinDevice twin_device(const agent::DeviceSetup& device,
                             const core::AgentDevice& known,
                             const Measured& measured) {
  const double link = measured.calibration.copy_alone;
  return {.device = known,
          .worker = {.device = device.id,
                     .pages = device.pages,
                     .device_pages = device.pages,
                     .step = device.step,
                     .prefix_cache = device.prefix_cache,
                     .queue = device.queue,
                     .fixed_parts = device.fixed_parts},
          .pace_step = device.pace.step,
          .pace_token = device.pace.token,
          .pace_context = device.pace.context,
          .link = device.load_bandwidth == 0
                      ? link
                      : std::min(link, static_cast<double>(device.load_bandwidth)),
          .map_page = measured.fit.map_page};
}

/// Of a sharded model, what its rank 0 computes and exchanges.
twin::StepTimes step_of(const std::vector<agent::HostModel>& ranks, const Measured& measured) {
  if (ranks.size() == 1) {
    return step_times(measured.fit, shape_of(measured.calibration.model));
  }
  const spec::ModelSpec& shard = ranks.front().spec;
  return with_exchanges(step_times(measured.fit, shape_of(shard)),
                        measured.exchange,
                        shard.layers,
                        shard.hidden,
                        shard.vocab);
}

/// Of a model's image, what comes before its head.
std::uint64_t body_bytes(const agent::HostModel& model) {
  const store::ImageLayout layout = store::plan_image(model.spec, model.dtype);
  return layout.stage_end.at(layout.stage_end.size() - 2);
}

/// Gives the models of the only host their ids.
void register_models(const config::Config& config,
                     const std::vector<host::OpenedModel>& opened,
                     manager::ModelRegistry& registry) {
  std::vector<manager::ConfiguredModel> models;
  for (const host::Offer& offer : host::offers(config, kHost, opened)) {
    models.push_back({.config = model_called(config, offer.name), .offers = {{kHost, offer}}});
  }
  registry.assign(std::move(models));
}

/// Adds the model with its shards, of which rank 0 tells what a step takes.
void add_model(const manager::ConfiguredModel& model,
               const std::vector<agent::HostModel>& ranks,
               const Measured& measured,
               twin::TwinSetup& setup) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const agent::HostModel& shard = ranks[rank];
    setup.models.push_back({.model = {.id = rank == 0 ? model.id : model.shards[rank - 1],
                                      .image_bytes = shard.image_bytes,
                                      .footprint = shard.footprint,
                                      .gpu_footprint = shard.gpu_footprint},
                            .layers = shard.spec.layers,
                            .body_bytes = body_bytes(shard)});
    if (rank == 0) {
      setup.models.back().step = step_of(ranks, measured);
      setup.models.back().ttl = model.config.ttl;
    }
  }
}

/// The host of `policy` in the words of its twin. Models get their ids in the order of the file.
Result<twin::TwinSetup> twin_setup(const LabPolicy& policy,
                                   manager::ModelRegistry& registry,
                                   const Constants& constants) {
  const config::Config& config = policy.config;
  const std::int64_t batch_tokens = host::choose_batch_tokens(config);
  const Result<agent::AgentSetup> agent = host::agent_setup(config, batch_tokens);
  if (!agent) {
    return agent.error();
  }
  const std::vector<host::OpenedModel> opened = host::open_models(
      config, {.page_bytes = agent->page_bytes, .max_batch_tokens = batch_tokens});
  register_models(config, opened, registry);
  twin::TwinSetup setup;
  twin::HostSetup& host = setup.hosts.front();
  host.agent = agent::core_options(*agent);
  for (std::size_t i = 0; i < opened.size(); ++i) {
    const std::string& name = opened[i].config.id;
    if (opened[i].config.engine) {
      return Error{.code = Code::kInvalidArgument,
                   .message = name + ": what an external engine will do cannot be predicted"};
    }
    if (!opened[i].ranks) {
      return opened[i].ranks.error();
    }
    add_model(registry.models()[i], *opened[i].ranks, constants.at(name), setup);
  }
  for (std::size_t i = 0; i < agent->devices.size(); ++i) {
    host.devices.push_back(twin_device(
        agent->devices[i], host.agent.devices[i], constants.at(registry.models()[0].config.id)));
  }
  setup.manager = manager::core_setup(
      config, registry.models(), host::host_facts(config, kHost).devices, Duration{});
  setup.preload = manager::to_preload(config, registry.models());
  return setup;
}

bench::Row row_of(const twin::Ask& ask, const twin::Answer& answer, std::size_t model) {
  const Duration due = ask.at.time_since_epoch();
  return {.model = model,
          .due = due,
          .begun = due,
          .first = answer.first.time_since_epoch(),
          .last = answer.last.time_since_epoch(),
          .ended = answer.last.time_since_epoch(),
          .prompt_tokens = ask.input_tokens,
          .completion_tokens = answer.tokens,
          .error = answer.error};
}

}  // namespace

Result<Constants> measure_constants(const LabFile& lab,
                                    const std::function<void(double)>& progress) {
  const config::Config& config = lab.policies.front().config;
  const config::DeviceConfig& device = config.devices.front();
  const std::int64_t batch_tokens = host::choose_batch_tokens(config);
  Constants constants;
  std::map<std::pair<std::string, spec::DType>, Measured> known;
  const std::vector<std::string> names = model_names(lab);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const config::ModelConfig& model = model_called(config, names[i]);
    const auto key = std::pair(model.path, model.dtype);
    if (!known.contains(key)) {
      const Result<agent::HostModel> host =
          agent::open_host_model(model.path,
                                 config.directory,
                                 model.dtype,
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
                     .dtype = model.dtype},
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

Result<LabRun> predict_run(const LabFile& lab,
                           const LabPolicy& policy,
                           std::int64_t seed,
                           const std::vector<bench::Shot>& shots,
                           const Constants& constants,
                           std::int64_t play) {
  manager::ModelRegistry registry;
  Result<twin::TwinSetup> setup = twin_setup(policy, registry, constants);
  if (!setup) {
    return setup.error();
  }
  policy::Calendar& calendar = setup->manager.options.planner.calendar;
  const bool step = keeps_step(shots, calendar.window);
  const Duration place = place_in_window(seed, calendar.window);
  // A server takes a moment to start; when it has says when the planner looks.
  const Duration moment = scatter(play, setup->manager.options.planner.period);
  calendar.offset = step ? moment : place;
  std::map<std::string, ModelId> ids;
  for (const manager::ConfiguredModel& model : registry.models()) {
    ids[model.config.id] = model.id;
  }
  const std::vector<std::string> names = model_names(lab);
  std::vector<twin::Ask> asks;
  const std::vector<bench::Shot> again = played_again(shots, play);
  for (const bench::Shot& shot : again) {
    asks.push_back({.at = Instant(shot.at),
                    .model = ids.at(names.at(shot.model)),
                    .input_tokens = shot.input_tokens,
                    .output_tokens = shot.output_tokens});
  }
  LabRun run{.policy = policy.name, .seed = seed};
  twin::Twin host(*setup);
  if (step) {
    host.rest(Instant(calendar.window + place - moment));
  }
  Metrics metrics;
  gateway::GatewayMetrics exposed(metrics);
  Counters base;
  const std::vector<twin::Answer> answers = host.run(asks, kWatchInterval, [&](Duration at) {
    exposed.publish(host);
    run.moments.emplace_back(at, Counters::parse(exposed.expose()));
    if (at <= lab.warmup) {
      base = run.moments.back().second;
    }
  });
  Duration last{};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    last = std::max(last, answers[i].last.time_since_epoch());
    if (again[i].at >= lab.warmup) {
      run.rows.push_back(row_of(asks[i], answers[i], again[i].model));
    }
  }
  // As they ended, as a live run has them.
  std::sort(run.rows.begin(), run.rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.ended, a.due) < std::pair(b.ended, b.due);
  });
  run.counted = run.moments.back().second.since(base);
  run.span = last - lab.warmup;
  for (const core::DeviceStatus& device : host.devices()) {
    run.device_pages.push_back(device.usage.total);
  }
  return run;
}

}  // namespace heddle::lab
