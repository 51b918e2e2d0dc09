#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_values.h"

namespace heddle::device {
namespace {

/// Scratch is had in pieces of at least so much, each twice the last.
constexpr std::size_t kScratchBytesMin = std::size_t{1} << 20U;

}  // namespace

CudaGraph::~CudaGraph() {
  context_.make_current();
  (void)context_.api().cuGraphExecDestroy(handle_);
}

Result<std::unique_ptr<CudaStream>> CudaStream::create(CudaDevice& device, int priority) {
  CudaContext& context = device.context();
  const DriverApi& api = context.api();
  context.make_current();
  std::unique_ptr<CudaStream> stream(new CudaStream(device, context));
  auto made =
      context.check("create a stream: cuStreamCreateWithPriority",
                    api.cuStreamCreateWithPriority(&stream->handle_, kStreamNonBlocking, priority));
  for (CUevent* const event : {&stream->event_, &stream->marks_[0], &stream->marks_[1]}) {
    if (made) {
      made = context.check("create an event: cuEventCreate",
                           api.cuEventCreate(event, kEventDisableTiming));
    }
  }
  if (!made) {
    return made.error();
  }
  return stream;
}

CudaStream::~CudaStream() {
  context_.make_current();
  const DriverApi& api = context_.api();
  for (const CUevent event : {event_, marks_[0], marks_[1], timers_[0], timers_[1]}) {
    if (event != nullptr) {
      (void)api.cuEventDestroy_v2(event);
    }
  }
  if (handle_ != nullptr) {
    (void)api.cuStreamSynchronize(handle_);
    (void)api.cuStreamDestroy_v2(handle_);
  }
}

bool CudaStream::ready() {
  context_.make_current();
  return !error_;
}

bool CudaStream::keep(const char* attempt, CUresult status) {
  if (status != kCudaSuccess) {
    fail(context_.failure(attempt, status));
  }
  return status == kCudaSuccess;
}

void CudaStream::fail(Error error) {
  if (!error_) {
    error_ = std::move(error);
  }
}

void CudaStream::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes > 0 && ready()) {
    keep("copy: cuMemcpyAsync",
         context_.api().cuMemcpyAsync(
             device_address(target), device_address(source), bytes, handle_));
  }
}

void CudaStream::raise_flag(Flag& flag, std::uint32_t value) {
  if (ready()) {
    keep("raise a flag: cuStreamWriteValue32",
         context_.api().cuStreamWriteValue32_v2(
             handle_, std::bit_cast<CUdeviceptr>(&flag), value, kStreamWriteFenced));
  }
}

void CudaStream::await_flag(const Flag& flag, std::uint32_t value) {
  if (ready()) {
    keep("wait for a flag: cuStreamWaitValue32",
         context_.api().cuStreamWaitValue32_v2(
             handle_, std::bit_cast<CUdeviceptr>(&flag), value, kStreamWaitNotBelow));
  }
}

Result<void> CudaStream::synchronize() {
  HEDDLE_CHECK(!capturing_);
  context_.make_current();
  // Also after an error: what was enqueued before it still runs.
  keep("run what was enqueued: cuStreamSynchronize", context_.api().cuStreamSynchronize(handle_));
  return take_error();
}

std::optional<float> CudaStream::time(const std::function<void()>& enqueue) {
  HEDDLE_CHECK(!capturing_);
  const DriverApi& api = context_.api();
  bool done = ready();
  for (CUevent& timer : timers_) {
    done = done && (timer != nullptr ||
                    keep("create an event: cuEventCreate", api.cuEventCreate(&timer, 0)));
  }
  done = done && keep("begin to time: cuEventRecord", api.cuEventRecord(timers_[0], handle_));
  if (!done) {
    return std::nullopt;
  }
  enqueue();
  float took = 0.0F;
  done = ready() && keep("end timing: cuEventRecord", api.cuEventRecord(timers_[1], handle_)) &&
         keep("run what is timed: cuEventSynchronize", api.cuEventSynchronize(timers_[1])) &&
         keep("time: cuEventElapsedTime", api.cuEventElapsedTime(&took, timers_[0], timers_[1]));
  return done ? std::optional(took) : std::nullopt;
}

std::uint64_t CudaStream::mark() {
  HEDDLE_CHECK(!capturing_);
  if (ready()) {
    keep("mark a place: cuEventRecord",
         context_.api().cuEventRecord(marks_[marked_ % marks_.size()], handle_));
  }
  return marked_++;
}

Result<void> CudaStream::wait(std::uint64_t mark) {
  HEDDLE_CHECK(!capturing_ && mark < marked_);
  context_.make_current();
  keep("run what was enqueued: cuEventSynchronize",
       context_.api().cuEventSynchronize(marks_[mark % marks_.size()]));
  return take_error();
}

Result<void> CudaStream::take_error() {
  std::optional<Error> error = std::exchange(error_, std::nullopt);
  if (auto lost = context_.lost()) {
    error = std::move(lost);  // Whatever failed first, this is what it came from.
  }
  return error ? Result<void>(*std::move(error)) : Result<void>();
}

void CudaStream::launch_bytes(const KernelId& kernel,
                              const LaunchShape& shape,
                              void* params,
                              std::size_t param_bytes) {
  if (!ready()) {
    return;
  }
  Known& known = kernels_[kernel.name];
  if (known.function == nullptr || shape.shared_bytes > known.shared_bytes) {
    auto function = device_.function(kernel, shape.shared_bytes);
    if (!function) {
      fail(function.error());
      return;
    }
    known = {.function = *function, .shared_bytes = shape.shared_bytes};
  }
  std::array<void*, 5> extra = {std::bit_cast<void*>(kLaunchParams),
                                params,
                                std::bit_cast<void*>(kLaunchParamsBytes),
                                &param_bytes,
                                std::bit_cast<void*>(kLaunchEnd)};
  CUlaunchAttribute overlap{.id = kLaunchProgrammatic, .pad = {}, .value = {}};
  overlap.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{.gridDimX = shape.grid.x,
                              .gridDimY = shape.grid.y,
                              .gridDimZ = shape.grid.z,
                              .blockDimX = shape.block.x,
                              .blockDimY = shape.block.y,
                              .blockDimZ = shape.block.z,
                              .sharedMemBytes = shape.shared_bytes,
                              .hStream = handle_,
                              .attrs = &overlap,
                              .numAttrs = device_.overlaps() ? 1U : 0U};
  const CUresult status =
      context_.api().cuLaunchKernelEx(&config, known.function, nullptr, extra.data());
  if (status != kCudaSuccess) {
    fail(context_.failure(std::string("launch ") + kernel.name + ": cuLaunchKernelEx", status));
  }
}

void CudaStream::wait_for(const CudaStream& other) {
  HEDDLE_CHECK(&other.context_ == &context_);
  if (ready() && keep("wait for a stream: cuEventRecord",
                      context_.api().cuEventRecord(event_, other.handle_))) {
    keep("wait for a stream: cuStreamWaitEvent",
         context_.api().cuStreamWaitEvent(handle_, event_, 0));
  }
}

std::byte* CudaStream::scratch(std::size_t bytes) {
  if (bytes <= lent_.size()) {
    return lent_.data();
  }
  const std::size_t have = scratch_.empty() ? 0 : scratch_.back().bytes();
  if (bytes <= have) {
    return scratch_.empty() ? nullptr : scratch_.back().data();
  }
  if (!ready()) {
    return nullptr;
  }
  if (capturing_) {
    fail({.code = Code::kFailedPrecondition,
          .message = "record work that needs " + std::to_string(bytes) +
                     " bytes of scratch memory, more than it did before"});
    return nullptr;
  }
  auto buffer = device_.allocate(Place::kDevice, std::max({bytes, 2 * have, kScratchBytesMin}));
  if (!buffer) {
    fail(buffer.error());
    return nullptr;
  }
  scratch_.push_back(std::move(*buffer));
  return scratch_.back().data();
}

bool CudaStream::begin_capture() {
  HEDDLE_CHECK(!capturing_);
  if (ready()) {
    keep("record work: cuStreamBeginCapture",
         context_.api().cuStreamBeginCapture_v2(handle_, kCaptureThreadLocal));
  }
  capturing_ = true;
  return true;
}

Result<std::unique_ptr<Graph>> CudaStream::end_capture() {
  HEDDLE_CHECK(capturing_);
  capturing_ = false;
  context_.make_current();
  const DriverApi& api = context_.api();
  CUgraph graph = nullptr;
  // Also after an error, so that the stream runs work again.
  keep("record work: cuStreamEndCapture", api.cuStreamEndCapture(handle_, &graph));
  CUgraphExec executable = nullptr;
  std::size_t operations = 0;
  if (!error_) {
    keep("record work: cuGraphGetNodes", api.cuGraphGetNodes(graph, nullptr, &operations));
  }
  if (!error_) {
    keep("record work: cuGraphInstantiate", api.cuGraphInstantiateWithFlags(&executable, graph, 0));
  }
  if (graph != nullptr) {
    (void)api.cuGraphDestroy(graph);
  }
  if (std::optional<Error> error = std::exchange(error_, std::nullopt)) {
    return *std::move(error);
  }
  return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(context_, executable, operations));
}

void CudaStream::replay(const Graph& graph) {
  if (ready()) {
    keep("run recorded work: cuGraphLaunch",
         context_.api().cuGraphLaunch(dynamic_cast<const CudaGraph&>(graph).handle(), handle_));
  }
}

}  // namespace heddle::device
