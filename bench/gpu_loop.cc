// What the host does in a decode step, and how long a GPU stands idle for it: the worker's core,
// its executor and its engine, with reports encoded as for the link, in the order of the worker's
// loop.
//
//   gpu_loop [--kernels none|all] [--context TOKENS] [--steps N]
//
//   --kernels   none (when absent): kernels are not launched, so that only the host's part is left;
//               all: they are, on a GPU
//
// Without kernels it says as much on the emulated driver as on a GPU, but for the driver's own part
// of each call. JSON lines on standard output, a table for people on standard error.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "bench/gpu_report.h"
#include "bench/shown_as.h"
#include "core/worker_core.h"
#include "device/cuda/cuda_device.h"
#include "rpc/messages.h"
#include "store/image_layout.h"
#include "store/image_loader.h"
#include "worker/device_executor.h"
#include "worker/inbox.h"

namespace heddle::bench {
namespace {

constexpr ModelId kModel{1};
constexpr std::size_t kPage = std::size_t{2} << 20U;

/// What the driver was asked to do, by the calls that matter here. Of one thread, the one that runs
/// the engine, which marks the end of each pass by an event.
struct Calls {
  Duration waiting{};  ///< In calls that wait for the device.
  Duration idle{};     ///< From a wait's end to the next launch, with no pass enqueued.
  Instant waited{};    ///< When the last wait ended.
  std::int64_t enqueued = 0;
  std::int64_t done = 0;  ///< Of these, known to be.
  std::map<device::CUevent, std::int64_t> ends{};
  std::int64_t launches = 0;  ///< Of kernels, since the last CUDA graph began.
  std::int64_t recorded = 0;  ///< In the last CUDA graph.

  std::map<device::CUdeviceptr, std::size_t> host{};  ///< Pinned memory, by where it begins.

  [[nodiscard]] bool is_host(device::CUdeviceptr at) const {
    const auto after = host.upper_bound(at);
    return after != host.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }
  /// Waits for the first `passes`.
  template <class Wait>
  device::CUresult wait(std::int64_t passes, const Wait& call) {
    const Instant began = steady_now();
    const device::CUresult status = call();
    waited = steady_now();
    waiting += waited - began;
    done = std::max(done, passes);
    return status;
  }
  void launched() { idle += enqueued == done ? steady_now() - waited : Duration{}; }
};

Calls& calls() {
  static thread_local Calls kept;
  return kept;
}

/// The driver's own calls.
device::DriverApi& real_api() {
  static device::DriverApi kept;
  return kept;
}

bool& launches_kernels() {
  static bool kept = false;
  return kept;
}

/// Puts calls of ours before the driver's.
void observe(const device::Driver& driver, bool kernels) {
  real_api() = driver.api();
  launches_kernels() = kernels;
  // The table is no constant, only shown as one.
  auto& api = const_cast<device::DriverApi&>(driver.api());  // NOLINT(*-const-cast)
  api.cuStreamSynchronize = [](device::CUstream stream) {
    return calls().wait(calls().enqueued, [&] { return real_api().cuStreamSynchronize(stream); });
  };
  api.cuEventSynchronize = [](device::CUevent event) {
    return calls().wait(calls().ends[event], [&] { return real_api().cuEventSynchronize(event); });
  };
  api.cuEventRecord = [](device::CUevent event, device::CUstream stream) {
    calls().ends[event] = ++calls().enqueued;
    return real_api().cuEventRecord(event, stream);
  };
  api.cuGraphLaunch = [](device::CUgraphExec graph, device::CUstream stream) {
    const device::CUresult status = real_api().cuGraphLaunch(graph, stream);
    calls().launched();
    return status;
  };
  api.cuStreamBeginCapture_v2 = [](device::CUstream stream, int mode) {
    calls().launches = 0;
    return real_api().cuStreamBeginCapture_v2(stream, mode);
  };
  api.cuStreamEndCapture = [](device::CUstream stream, device::CUgraph* graph) {
    calls().recorded = calls().launches;
    return real_api().cuStreamEndCapture(stream, graph);
  };
  api.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned flags) {
    const device::CUresult status = real_api().cuMemHostAlloc(memory, bytes, flags);
    calls().host[std::bit_cast<device::CUdeviceptr>(*memory)] = bytes;
    return status;
  };
  api.cuMemFreeHost = [](void* memory) {
    calls().host.erase(std::bit_cast<device::CUdeviceptr>(memory));
    return real_api().cuMemFreeHost(memory);
  };
  api.cuMemcpyAsync = [](device::CUdeviceptr target,
                         device::CUdeviceptr source,
                         std::size_t bytes,
                         device::CUstream stream) {
    if (launches_kernels() || !calls().is_host(target)) {
      return real_api().cuMemcpyAsync(target, source, bytes, stream);
    }
    std::memset(std::bit_cast<void*>(target), 0, bytes);  // What kernels would have left there.
    return device::kCudaSuccess;
  };
  api.cuLaunchKernelEx = [](auto... arguments) {
    ++calls().launches;
    return launches_kernels() ? real_api().cuLaunchKernelEx(arguments...) : device::kCudaSuccess;
  };
}

/// As many launches in a step as a model of 8 billion parameters has, and little to copy.
spec::ModelSpec model() {
  return {.hidden = 64,
          .layers = 32,
          .heads = 4,
          .kv_heads = 1,
          .head_dim = 64,
          .intermediate = 64,
          .vocab = 128256,
          .max_position = 131072,
          .window = std::vector<std::int64_t>(32, 0)};
}

/// The parts of a step, each without what it waits for the device.
struct Parts {
  Duration plan{};    ///< The core decides what runs.
  Duration run{};     ///< The engine: blocks, inputs, launches, results.
  Duration hear{};    ///< The core takes results in.
  Duration encode{};  ///< What is sent, but for the sending.
};

/// The worker's loop over a device, without its sockets.
class Loop {
 public:
  Loop(device::Device& device, std::int64_t max_batch_tokens)
      : core_({.device = DeviceId{0},
               .pages = static_cast<std::int64_t>(device.properties().page_count),
               .step = {.budget = std::chrono::milliseconds(50),
                        .max_batch_tokens = max_batch_tokens},
               .prefix_cache = 50}) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < device.properties().page_count; ++i) {
      pages.emplace_back(i);
    }
    executor_ = must(worker::DeviceExecutor::create(
        device,
        {.pages = pages, .max_batch_tokens = max_batch_tokens, .prefix_cache = true},
        {.on_event = [this](core::WorkerEvent event) { inbox_.push(std::move(event)); },
         .on_report = [this](core::WorkerReport report) { send(std::move(report)); },
         .on_lost = [](const Error& error) { must(Result<void>(error)); }}));
  }

  worker::DeviceExecutor& executor() { return *executor_; }

  void tell(core::WorkerEvent event) {
    std::vector<core::WorkerEvent> events;
    events.push_back(std::move(event));
    for (std::size_t i = 0; i < events.size(); ++i) {
      std::vector<core::WorkerCommand> commands;
      core_.step(steady_now(), events[i], commands);
      carry_out(commands, events);
    }
  }

  /// Hears what comes until a report of this kind was sent.
  template <class R>
  void await() {
    sent_.clear();
    while (std::none_of(sent_.begin(), sent_.end(), [](const core::WorkerReport& report) {
      return std::holds_alternative<R>(report);
    })) {
      for (core::WorkerEvent& event : inbox_.wait()) {
        tell(std::move(event));
      }
    }
  }

  /// One step, if there is one to run.
  bool step(Parts& parts) {
    const Instant began = steady_now();
    std::vector<core::WorkerCommand> commands;
    core_.step(began, core::EngineIdle{}, commands);
    const Instant planned = steady_now();
    const Duration waited = calls().waiting;
    std::vector<core::WorkerEvent> events;
    carry_out(commands, events);
    const Instant ran = steady_now();
    const Duration encoded = encode_;
    for (core::WorkerEvent& event : events) {
      tell(std::move(event));
    }
    const Instant heard = steady_now();
    parts.plan += planned - began;
    parts.run += ran - planned - (calls().waiting - waited);
    parts.hear += heard - ran - (encode_ - encoded);
    parts.encode += encode_ - encoded;
    return !events.empty();
  }

 private:
  void carry_out(std::vector<core::WorkerCommand>& commands,
                 std::vector<core::WorkerEvent>& events) {
    for (core::WorkerCommand& command : commands) {
      must(executor_->carry_out(std::move(command), events));
    }
    executor_->count_kv(events);
  }

  void send(core::WorkerReport report) {
    const Instant began = steady_now();
    bytes_ += rpc::encode({.body = report}).size();
    encode_ += steady_now() - began;
    if (const auto* failed = std::get_if<core::RequestFailed>(&report)) {
      must(Result<void>(failed->error));
    }
    if (!std::holds_alternative<core::TokensProduced>(report)) {
      sent_.push_back(std::move(report));
    }
  }

  core::WorkerCore core_;
  worker::Inbox<core::WorkerEvent> inbox_{};
  std::vector<core::WorkerReport> sent_{};
  Duration encode_{};
  std::size_t bytes_ = 0;
  std::unique_ptr<worker::DeviceExecutor> executor_{};
};

struct Options {
  bool kernels = false;
  std::int64_t context = 1024;
  std::int64_t steps = 200;
};

/// Loads the image from the first `pages` pages of the host.
core::LoadModel load_of(const store::ImageLayout& layout, std::uint64_t pages) {
  core::LoadModel load{.model = kModel,
                       .source = core::ImageSource::kShared,
                       .image_bytes = layout.bytes,
                       .ready_bytes = layout.bytes};
  for (std::uint64_t i = 0; i < pages; ++i) {
    load.pages.emplace_back(i);
  }
  load.footprint.image_pages = static_cast<std::int64_t>(pages);
  load.footprint.min_kv_pages = 1;
  load.footprint.kv = {{.tokens_per_block = 16, .blocks_per_page = kPage / (16 * 8192)}};
  return load;
}

/// `ahead`: the engine enqueues steps before those before them have ended, as it does where a
/// device is asynchronous.
void measure(const Options& options, std::int64_t batch, bool ahead, const Report& report) {
  const std::string what =
      "decode of " + std::to_string(batch) + (ahead ? ", ahead" : ", one by one");
  const spec::ModelSpec spec = model();
  const store::ImageLayout layout = store::plan_image(spec, spec::DType::kBf16);
  const std::uint64_t image = store::pages_for(layout.bytes, kPage);
  const std::shared_ptr<const device::Driver> driver = must(device::Driver::open());
  observe(*driver, options.kernels);
  // Prompts are read in steps of which some have tokens for those that came before.
  const std::int64_t warm_up = batch * options.context / 256 + 64;
  const std::int64_t tokens = warm_up + options.steps + 1;
  const auto kv = static_cast<std::uint64_t>(
      batch * ((options.context + tokens) * 8192 / static_cast<std::int64_t>(kPage) + 2));
  device::Arena host = must(device::Arena::create({.page_bytes = kPage, .page_count = image}));
  auto device = must(device::CudaDevice::create(
      {.page_bytes = kPage, .bytes = (image + kv + 64) * kPage, .driver = driver},
      std::move(host)));
  device::Properties properties = device->properties();
  properties.asynchronous = ahead;
  ShownAs shown(*device, properties);
  Loop loop(shown, 2048);
  loop.executor().describe(
      {.model = kModel, .name = "model", .spec = spec, .dtype = spec::DType::kBf16});
  loop.tell(core::WorkerMessage(load_of(layout, image)));
  loop.await<core::ImageCopied>();
  for (std::int64_t i = 0; i < batch; ++i) {
    core::Submit submit{.request = RequestId{static_cast<std::uint64_t>(i + 1)}, .model = kModel};
    submit.prompt.assign(static_cast<std::size_t>(options.context), static_cast<TokenId>(i));
    submit.choices = {{.params = {.temperature = 0.7F, .max_tokens = tokens}}};
    submit.choices[0].params.ignore_eos = true;
    loop.tell(core::WorkerMessage(std::move(submit)));
  }
  Parts unused;
  for (std::int64_t i = 0; i < warm_up; ++i) {
    loop.step(unused);  // Prompts are read, and steps of this size recorded.
  }
  Parts parts;
  calls().waiting = calls().idle = {};
  const Instant began = steady_now();
  for (std::int64_t i = 0; i < options.steps; ++i) {
    if (!loop.step(parts)) {
      report.skip(what, "it came to a stop");
      return;
    }
  }
  const Duration all = steady_now() - began;
  const auto us = [&](Duration part) {
    return 1e6 * to_seconds(part) / static_cast<double>(options.steps);
  };
  report.row(what,
             {{"host_us", us(all - calls().waiting)},
              {"plan_us", us(parts.plan)},
              {"run_us", us(parts.run)},
              {"hear_us", us(parts.hear)},
              {"encode_us", us(parts.encode)},
              {"waited_us", us(calls().waiting)},
              {"idle_us", us(calls().idle)},
              {"launches", static_cast<double>(calls().recorded)}});
}

[[noreturn]] void usage() {
  std::fprintf(stderr, "gpu_loop [--kernels none|all] [--context TOKENS] [--steps N]\n");
  std::exit(2);
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view key = argv[i];
    if (i + 1 == argc) {
      usage();
    }
    const std::string_view value = argv[i + 1];
    if (key == "--kernels" && (value == "none" || value == "all")) {
      options.kernels = value == "all";
    } else if (key == "--context") {
      options.context = std::atoll(argv[i + 1]);
    } else if (key == "--steps") {
      options.steps = std::atoll(argv[i + 1]);
    } else {
      usage();
    }
  }
  return options;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const Options options = read_options(argc, argv);
  const Report report("loop");
  for (const std::int64_t batch : {1, 32, 128}) {
    for (const bool ahead : {false, true}) {
      measure(options, batch, ahead, report);
    }
  }
  return 0;
}
