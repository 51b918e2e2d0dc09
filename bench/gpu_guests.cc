// What it costs a GPU to have another one run attention over guests: a step of some layers with the
// flags of src/weave, its hand-off being what it takes beyond the attention itself. Two GPUs where
// there are two that reach each other, else two streams of one. The host's stream is as urgent as
// its own model's (high) or gives way to it (low), and its GPU is idle or replays a decode step,
// recorded, all the while. Medians, by the host's clock over whole steps.
//
//   gpu_guests            needs about 6 GiB of each GPU
//   gpu_guests small      shapes that the emulated driver gets through (its times mean nothing)
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/cuda/cuda_device.h"
#include "ops/guest_attention.h"
#include "ops/linear.h"

namespace heddle {
namespace {

constexpr std::int64_t kBlockTokens = 16;

/// Guests of a hot model: so many sequences with so many positions away.
struct Shape {
  std::int64_t rows = 1;
  std::int64_t positions = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden = 0;  ///< Of the matrices of the model that is replayed.

  [[nodiscard]] std::int64_t blocks() const { return rows * positions / kBlockTokens; }
  [[nodiscard]] std::int64_t side_bytes() const { return kv_heads * kBlockTokens * head_dim * 2; }
  [[nodiscard]] std::int64_t block_bytes() const { return 2 * side_bytes(); }
};

Shape shape_of(bool small, std::int64_t rows, std::int64_t positions) {
  if (small) {
    return {.rows = std::min<std::int64_t>(rows, 2),
            .positions = 32,
            .layers = 2,
            .heads = 8,
            .kv_heads = 2,
            .head_dim = 64,
            .hidden = 128};
  }
  return {.rows = rows,
          .positions = positions,
          .layers = 32,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 4096};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The two devices, one layer's guests in the memory of the second, and where both meet.
class Bed final : public ops::AttentionHost {
 public:
  Bed(device::CudaDevice& hot, device::CudaDevice& host, const Shape& shape)
      : shape_(shape), hot_device_(hot), host_device_(host) {
    const std::int64_t rows = shape.rows;
    const std::int64_t per_row = shape.positions / kBlockTokens;
    std::vector<std::int32_t> step(static_cast<std::size_t>(3 * rows + 1));
    std::iota(step.begin(), step.begin() + rows + 1, 0);
    std::fill(step.begin() + rows + 1,
              step.begin() + 2 * rows + 1,
              static_cast<std::int32_t>(shape.positions));
    std::fill(step.begin() + 2 * rows + 1, step.end(), static_cast<std::int32_t>(shape.positions));
    for (std::int64_t i = 0; i < rows * per_row; ++i) {
      step.push_back(static_cast<std::int32_t>(i));
    }
    const device::Buffer staged = hot.allocate(device::Place::kHost, step.size() * 4).value();
    std::memcpy(staged.data(), step.data(), step.size() * 4);
    for (auto* const side : {&hot_, &host_}) {
      device::CudaDevice& device = side == &hot_ ? hot : host;
      side->numbers = device.allocate(device::Place::kDevice, step.size() * 4).value();
      side->query = device.allocate(device::Place::kDevice, query_bytes()).value();
      side->state = device.allocate(device::Place::kDevice, state_bytes()).value();
      side->stream = device.create_stream().value();
      side->stream->copy(side->numbers.data(), staged.data(), step.size() * 4);
      HEDDLE_CHECK(side->stream->synchronize().has_value());
    }
  }

  /// How urgent the host's stream is.
  void set_priority(bool high) {
    host_.stream = high ? host_device_.create_stream().value()
                        : host_device_.create_background_stream().value();
  }

  void begin_step(std::span<const ops::GuestSequence> /*sequences*/) override {}
  void post(const ops::GuestRows& /*rows*/) override {}
  bool await(const ops::GuestRows& /*rows*/) override { return false; }
  std::optional<ops::GuestMeeting> meet(std::int64_t /*layer*/, std::int64_t /*rows*/) override {
    ticket_ += 2;
    return ops::GuestMeeting{.query = reinterpret_cast<float*>(area_.data()),
                             .state = reinterpret_cast<float*>(area_.data() + query_bytes()),
                             .posted = &flags()[0],
                             .served = &flags()[32],
                             .ticket = ticket_};
  }

  /// The hot side reads the host's memory itself.
  double at_home() {
    return step([this] { enqueue_hot(nullptr); }, *hot_.stream);
  }
  /// The host's part, with nobody to wait for.
  double host_alone() {
    return step([this] { enqueue_host(/*meets=*/false); }, *host_.stream);
  }
  double woven() {
    return step(
        [this] {
          enqueue_host(/*meets=*/true);
          enqueue_hot(this);
        },
        *hot_.stream);
  }

 private:
  struct Side {
    device::Buffer numbers{};  ///< Begins of rows, positions, borders, blocks.
    device::Buffer query{};
    device::Buffer state{};
    std::unique_ptr<device::Stream> stream{};
  };
  [[nodiscard]] std::size_t query_bytes() const {
    return static_cast<std::size_t>(shape_.rows * shape_.heads * shape_.head_dim) * 4;
  }
  [[nodiscard]] std::size_t state_bytes() const {
    return static_cast<std::size_t>(shape_.rows * shape_.heads * (shape_.head_dim + 2)) * 4;
  }
  [[nodiscard]] device::Flag* flags() const {
    return reinterpret_cast<device::Flag*>(flags_.data());
  }

  [[nodiscard]] ops::AttentionArgs arguments(const Side& side,
                                             std::byte* query,
                                             std::byte* state,
                                             std::byte* memory) const {
    const auto* const numbers = reinterpret_cast<const std::int32_t*>(side.numbers.data());
    const std::int64_t rows = shape_.rows;
    const auto heads = [&](std::byte* data, std::int64_t width) {
      return ops::heads_of(
          ops::matrix_of(reinterpret_cast<float*>(data), rows, shape_.heads * width),
          0,
          shape_.heads,
          width);
    };
    const std::int32_t* const borders = numbers + 2 * rows + 1;
    return {
        .rows = {.begin = ops::vector_of(numbers, rows + 1),
                 .first_position = ops::vector_of(numbers + rows + 1, rows)},
        .query = heads(query, shape_.head_dim),
        .kv = {.base = memory,
               .block_bytes = shape_.block_bytes(),
               .block_tokens = kBlockTokens,
               .value_offset = shape_.side_bytes(),
               .kv_heads = shape_.kv_heads,
               .head_dim = shape_.head_dim,
               .table = ops::matrix_of(borders + rows, rows, shape_.positions / kBlockTokens)},
        .scale = 0.1F,
        .parts = {.end = ops::vector_of(borders, rows), .left = heads(state, shape_.head_dim + 2)}};
  }

  void enqueue_hot(ops::AttentionHost* host) {
    ops::OpContext context{.stream = *hot_.stream, .kernels = kernels_};
    const ops::GuestAttentionArgs args{
        .host = host,
        .attention = arguments(hot_, hot_.query.data(), hot_.state.data(), attached_.data())};
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      ops::post_guest_attention(context, args);
      ops::await_guest_attention(context, args);
    }
  }
  /// Layers that meet the hot side's next ones, or that work alone.
  void enqueue_host(bool meets) {
    ops::OpContext context{.stream = *host_.stream, .kernels = kernels_};
    std::byte* const query = meets ? area_.data() : host_.query.data();
    std::byte* const state = meets ? area_.data() + query_bytes() : host_.state.data();
    for (std::int64_t layer = 1; layer <= shape_.layers; ++layer) {
      const std::uint32_t ticket = ticket_ + 2 * static_cast<std::uint32_t>(layer);
      if (meets) {
        host_.stream->await_flag(flags()[0], ticket);
      }
      ops::attention(context, arguments(host_, query, state, lent_.buffer.data()));
      if (meets) {
        host_.stream->raise_flag(flags()[32], ticket);
      }
    }
  }

  /// Microseconds that a layer takes.
  double step(const std::function<void()>& enqueue, device::Stream& awaited) const {
    constexpr int kSteps = 15;
    std::vector<double> times;
    for (int i = 0; i < kSteps + 2; ++i) {
      const Instant began = steady_now();
      enqueue();
      HEDDLE_CHECK(awaited.synchronize().has_value());
      times.push_back(to_seconds(steady_now() - began) * 1e6 / static_cast<double>(shape_.layers));
    }
    times.erase(times.begin(), times.begin() + 2);  // They load kernels and take scratch.
    return median(times);
  }

  Shape shape_;
  device::CudaDevice& hot_device_;
  device::CudaDevice& host_device_;
  const ops::KernelTable& kernels_ = *ops::kernels_for(device::Kind::kCuda);
  device::SharedBuffer lent_ =
      host_device_.allocate_shared(static_cast<std::size_t>(shape_.blocks() * shape_.block_bytes()))
          .value();
  device::Buffer attached_ =
      hot_device_.attach_shared(lent_.descriptor, lent_.buffer.bytes()).value();
  device::Buffer area_ =
      hot_device_.allocate(device::Place::kHost, query_bytes() + state_bytes()).value();
  device::Buffer flags_ = hot_device_.allocate(device::Place::kHost, 256).value();
  std::uint32_t ticket_ = 0;
  Side hot_{};
  Side host_{};
};

/// A model that decodes on the host meanwhile: matrices of some layers, recorded and replayed.
class Replayed {
 public:
  Replayed(device::CudaDevice& device, const Shape& shape)
      : weights_(device.allocate(device::Place::kDevice, matrix_bytes(shape)).value()),
        vectors_(device.allocate(device::Place::kDevice, static_cast<std::size_t>(shape.hidden) * 6)
                     .value()),
        stream_(device.create_stream().value()) {
    const ops::TensorRef x = ops::tensor_2d(vectors_.data(), ops::DType::kBf16, 1, shape.hidden);
    auto* const out = reinterpret_cast<float*>(vectors_.data() + shape.hidden * 2);
    const auto enqueue = [&] {
      ops::OpContext context{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
      for (std::int64_t i = 0; i < 7 * shape.layers; ++i) {
        ops::linear(
            context,
            {.x = x,
             .weight = ops::tensor_2d(
                 std::as_const(weights_).data(), ops::DType::kBf16, shape.hidden, shape.hidden),
             .out = ops::matrix_of(out, 1, shape.hidden)});
      }
    };
    enqueue();
    HEDDLE_CHECK(stream_->synchronize().has_value() && stream_->begin_capture());
    enqueue();
    graph_ = stream_->end_capture().value();
  }

  /// Steps a second while `work` runs in another thread, or for a moment without.
  double rate(const std::function<void()>& work) {
    std::atomic<bool> over = false;
    std::thread other([&] {
      work();
      over = true;
    });
    const Instant began = steady_now();
    int steps = 0;
    do {
      stream_->replay(*graph_);
      HEDDLE_CHECK(stream_->synchronize().has_value());
      ++steps;
    } while (!over);
    const double rate = steps / to_seconds(steady_now() - began);
    other.join();
    return rate;
  }

 private:
  static std::size_t matrix_bytes(const Shape& shape) {
    return static_cast<std::size_t>(shape.hidden * shape.hidden) * 2;
  }

  device::Buffer weights_;
  device::Buffer vectors_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Graph> graph_{};
};

void measure(device::CudaDevice& hot, device::CudaDevice& host, const Shape& shape) {
  Bed bed(hot, host, shape);
  Replayed replayed(host, shape);
  const double home = bed.at_home();
  const double still = replayed.rate([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  for (const bool high : {true, false}) {
    bed.set_priority(high);
    for (const bool busy : {false, true}) {
      double alone = 0.0;
      double woven = 0.0;
      double rate = still;
      if (busy) {
        (void)replayed.rate([&] { alone = bed.host_alone(); });
        rate = replayed.rate([&] { woven = bed.woven(); });
      } else {
        alone = bed.host_alone();
        woven = bed.woven();
      }
      std::printf("| %ld x %ld | %s, %s | %.1f | %.1f | %.1f | %.1f | %.2f |\n",
                  shape.rows,
                  shape.positions,
                  high ? "high" : "low",
                  busy ? "busy" : "idle",
                  home,
                  alone,
                  woven,
                  woven - alone,
                  rate / still);
      std::fflush(stdout);
    }
  }
}

int run(bool small) {
  std::vector<std::unique_ptr<device::CudaDevice>> devices;
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    auto device = device::CudaDevice::create({.ordinal = ordinal, .bytes = 64U << 20U});
    if (device) {
      devices.push_back(std::move(*device));
    } else if (ordinal == 0) {
      std::fprintf(stderr, "%s\n", device.error().message.c_str());
      return 1;
    }
  }
  device::CudaDevice& hot = *devices.front();
  const bool two = devices.size() == 2 && hot.is_linked_to(1);
  device::CudaDevice& host = two ? *devices.back() : hot;
  if (!hot.properties().flags) {
    std::fprintf(stderr, "%s has no stream memory operations\n", hot.properties().name.c_str());
    return 1;
  }
  std::printf("%s, %s; times of a layer [us], the host's own rate with guests as a share\n\n",
              hot.properties().name.c_str(),
              two ? "two of them" : "two streams of one");
  std::printf(
      "| rows x positions | host | over the link | attention | woven | hand-off | its rate |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [rows, positions] : std::array<std::pair<std::int64_t, std::int64_t>, 4>{
           {{1, 1024}, {8, 4096}, {32, 4096}, {32, 16384}}}) {
    measure(hot, host, shape_of(small, rows, positions));
    if (small) {
      break;
    }
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  return heddle::run(count > 1 && std::string_view(arguments[1]) == "small");
}
