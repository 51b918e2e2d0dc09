#include "agent/make_arena.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

namespace heddle::agent {
namespace {

/// Of how far it is.
constexpr Duration kTellEvery = std::chrono::seconds(2);

std::string_view backing_name(device::ArenaBacking backing) {
  switch (backing) {
    case device::ArenaBacking::kHugetlb:
      return "huge pages";
    case device::ArenaBacking::kHugeShmem:
      return "shared memory, huge where possible";
    case device::ArenaBacking::kShmem:
      return "shared memory";
  }
  return "?";
}

std::uint64_t arena_pages(const AgentSetup& setup) {
  std::int64_t pages = setup.host_pages;
  for (const DeviceSetup& device : setup.devices) {
    pages += device.gpu.has_value() ? 0 : device.pages + device.kv_pages;
  }
  return static_cast<std::uint64_t>(pages);
}

}  // namespace

Result<device::Arena> make_arena(const AgentSetup& setup) {
  const Instant began = steady_now();
  Instant told = began;
  const auto tell = [&told](std::uint64_t done, std::uint64_t bytes) {
    if (done < bytes && steady_now() - told >= kTellEvery) {
      told = steady_now();
      log::info("making the arena", {{"done", format_bytes(done)}, {"of", format_bytes(bytes)}});
    }
  };
  Result<device::Arena> arena = device::Arena::create(
      {.page_bytes = setup.page_bytes, .page_count = arena_pages(setup), .progress = tell});
  if (!arena) {
    return arena.error();
  }
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(steady_now() - began).count();
  log::info("arena made",
            {{"bytes", arena->bytes()}, {"backing", backing_name(arena->backing())}, {"ms", took}});
  if (const std::string advice = arena->huge_page_advice(); !advice.empty()) {
    log::info("models would be there sooner, and read faster, with huge pages", {{"how", advice}});
  }
  return arena;
}

}  // namespace heddle::agent
