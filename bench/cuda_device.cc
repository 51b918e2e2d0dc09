// What a GPU's memory, link and queue give, through the same calls that the product makes: taking
// memory, pinning the host's, mapping windows, copies, launches and graphs. Ceilings to hold loads
// and steps against.
//
//   cuda_device            one GPU, the first: 16 GiB of it, and 4 GiB of the host
//   cuda_device small      sizes that the emulated driver gets through (its times mean nothing)
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "cuda_emulator/probe_kernels.h"
#include "device/cuda/cuda_stream.h"

namespace heddle::emulator {
const device::ModuleImage& probe_image();
}

namespace heddle::device {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kPage = 2 * kMiB;
constexpr int kRuns = 7;
const KernelId kFill{&emulator::probe_image(), "heddle_probe_fill"};

/// Seconds that `work` takes.
template <class Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The median of some runs, after one that does not count.
template <class Work>
double median_of(const Work& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    times.push_back(seconds_of(work));
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

double gb_per_second(std::size_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds * 1e-9;
}

class Bench {
 public:
  explicit Bench(bool small)
      : pages_(small ? 48 : 8192), host_pages_(small ? 16 : 2048), launches_(small ? 10 : 2000) {}

  void run() {
    make();
    mappings();
    exchanges();
    copies();
    launches();
  }

 private:
  /// The device twice, so that what the arena adds is seen.
  void make() {
    const CudaDeviceOptions options{.page_bytes = kPage, .bytes = pages_ * kPage};
    const double first = seconds_of([&] { (void)CudaDevice::create(options).value(); });
    const double alone = seconds_of([&] { (void)CudaDevice::create(options).value(); });
    Arena arena = Arena::create({.page_bytes = kPage, .page_count = host_pages_}).value();
    const double with_host =
        seconds_of([&] { device_ = CudaDevice::create(options, std::move(arena)).value(); });
    stream_ = CudaStream::create(*device_, 0).value();
    std::printf("%s\n", device_->properties().name.c_str());
    std::printf("first device of the process %8.1f ms, then %.1f ms: %.1f us a page of 2 MiB\n",
                first * 1e3,
                alone * 1e3,
                alone * 1e6 / static_cast<double>(pages_));
    std::printf("pinning the host's arena    %8.1f ms a GiB\n",
                (with_host - alone) * 1e3 / (static_cast<double>(host_pages_ * kPage) / 0x1p30));
  }

  /// Windows over pages that lie anywhere.
  void mappings() {
    std::vector<PageId> pages;
    for (std::uint64_t page = 0; page < pages_; ++page) {
      pages.emplace_back(page);
    }
    Rng rng(1);
    for (std::size_t i = pages.size() - 1; i > 0; --i) {
      std::swap(pages[i], pages[rng.below(i + 1)]);
    }
    for (std::size_t count = 1; count <= pages.size(); count *= 8) {
      const AddressRange range = device_->reserve(count * kPage).value();
      double unmapping = 0.0;
      const double both = median_of([&] {
        HEDDLE_CHECK(device_->map(range, 0, std::span(pages).first(count), Access::kRead));
        unmapping = seconds_of([&] { device_->unmap(range, 0, range.bytes); });
      });
      std::printf("window of %5zu pages: map %9.1f us, unmap %9.1f us\n",
                  count,
                  (both - unmapping) * 1e6,
                  unmapping * 1e6);
      device_->release(range);
    }
    std::printf("mappings %s read-only\n", device_->protects() ? "are" : "cannot be");
  }

  void exchanges() {
    std::vector<PageId> pages;
    for (std::uint64_t page = 0; page < pages_ / 4; ++page) {
      pages.emplace_back(page);
    }
    double taking = 0.0;
    const double both = median_of([&] {
      device_->give_back(pages);
      taking = seconds_of([&] { HEDDLE_CHECK(device_->take_again(pages)); });
    });
    std::printf("%zu pages: given back in %.1f ms, taken again in %.1f ms\n",
                pages.size(),
                (both - taking) * 1e3,
                taking * 1e3);
  }

  /// `total` bytes in pieces of `piece`.
  void copy_all(std::byte* target, const std::byte* source, std::size_t total, std::size_t piece) {
    for (std::size_t at = 0; at < total; at += piece) {
      stream_->copy(target + at, source + at, piece);
    }
    HEDDLE_CHECK(stream_->synchronize());
  }

  void copies() {
    const std::size_t total = std::min(host_pages_, pages_ / 2) * kPage;
    std::byte* const host = device_->host_page_address(PageId(0));
    std::byte* const near = device_->page_address(PageId(0));
    std::byte* const far = device_->page_address(PageId(pages_ / 2));
    for (std::size_t piece = kMiB / 4; piece <= 64 * kMiB && piece <= total; piece *= 4) {
      const double in = median_of([&] { copy_all(near, host, total, piece); });
      const double out = median_of([&] { copy_all(host, near, total, piece); });
      const double within = median_of([&] { copy_all(far, near, total, piece); });
      std::printf("copies of %6zu KiB: in %6.1f, out %6.1f, within %7.1f GB/s\n",
                  piece >> 10U,
                  gb_per_second(total, in),
                  gb_per_second(total, out),
                  gb_per_second(total, within));
    }
  }

  void enqueue() {
    auto* const out = reinterpret_cast<std::int32_t*>(device_->page_address(PageId(0)));
    for (int i = 0; i < launches_; ++i) {
      stream_->launch(kFill,
                      {.grid = {1}, .block = {32}},
                      emulator::FillParams{.out = out, .count = 32, .value = i});
    }
  }

  void launches() {
    const double one = median_of([&] {
      stream_->launch(kFill, {.grid = {1}, .block = {32}}, emulator::FillParams{});
      HEDDLE_CHECK(stream_->synchronize());
    });
    double enqueued = 0.0;
    const double all = median_of([&] {
      enqueued = seconds_of([&] { enqueue(); });
      HEDDLE_CHECK(stream_->synchronize());
    });
    HEDDLE_CHECK(stream_->begin_capture());
    enqueue();
    const auto graph = stream_->end_capture().value();
    double replayed = 0.0;
    const double recorded = median_of([&] {
      replayed = seconds_of([&] { stream_->replay(*graph); });
      HEDDLE_CHECK(stream_->synchronize());
    });
    const double scale = 1e6 / launches_;
    std::printf("one kernel and waiting for it %.1f us\n", one * 1e6);
    std::printf("%d kernels, each: enqueued in %.2f us, done after %.2f us\n",
                launches_,
                enqueued * scale,
                all * scale);
    std::printf("the same as a graph: enqueued in %.1f us in all, each done after %.2f us\n",
                replayed * 1e6,
                recorded * scale);
  }

  std::uint64_t pages_;
  std::uint64_t host_pages_;
  int launches_;
  std::unique_ptr<CudaDevice> device_{};
  std::unique_ptr<CudaStream> stream_{};
};

}  // namespace
}  // namespace heddle::device

int main(int argc, char** argv) {
  if (const auto driver = heddle::device::Driver::open(); !driver) {
    std::fprintf(stderr, "%s\n", driver.error().message.c_str());
    return 1;
  }
  heddle::device::Bench(argc > 1 && std::string_view(argv[1]) == "small").run();
  return 0;
}
