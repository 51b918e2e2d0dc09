// What a host of guests is asked by a hot worker: geometries, jobs and tables, whatever they are.
// It reads its own pages that are lent, or says what is wrong and closes the area.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "weave/test_pair.h"

using namespace heddle;
using weave::JobArea;

namespace {

/// Takes `value` from the front of the input, as far as there is any.
template <class T>
void take(std::span<const std::uint8_t>& input, T& value) {
  const std::size_t size = std::min(sizeof(T), input.size());
  std::memcpy(&value, input.data(), size);
  input = input.subspan(size);
}

void try_geometry(std::span<const std::uint8_t> input) {
  weave::Geometry geometry = weave::test::geometry();
  std::uint16_t at = 0;
  take(input, at);
  const std::size_t from = at % sizeof(geometry);
  std::memcpy(reinterpret_cast<std::byte*>(&geometry) + from,
              input.data(),
              std::min(input.size(), sizeof(geometry) - from));
  const auto checked = weave::check_geometry(geometry, {}, weave::test::kPageBytes);
  HEDDLE_CHECK(checked.has_value() || !checked.error().message.empty());
}

/// Asks for one layer after another, each a job and as much of a table as the input has.
void try_jobs(std::span<const std::uint8_t> input) {
  // As large as a page is, and no more: what is read beyond is seen.
  static std::vector<std::byte> pages(weave::test::kPages * weave::test::kPageBytes);
  const auto area = JobArea::create(weave::test::geometry()).value();
  const auto server =
      weave::GuestServer::create(area, pages.data(), weave::test::kPageBytes, {}).value();
  const std::vector<PageId> lent{PageId(8), PageId(weave::test::kPages - 1)};
  server->lend(lent);
  for (std::uint32_t ticket = 1; !input.empty(); ++ticket) {
    std::uint8_t step = 0;
    std::int8_t layer = 0;
    std::int16_t rows = 0;
    std::uint8_t words = 0;
    take(input, step);
    take(input, layer);
    take(input, rows);
    take(input, words);
    const auto table = area->table(step);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint16_t place = 0;
      take(input, place);
      take(input, table[place % table.size()]);
    }
    area->job() = {.step = step, .layer = layer, .rows = rows};
    area->posted().raise(ticket);
    const auto served = server->serve(Duration{}, std::chrono::seconds(1));
    HEDDLE_CHECK(area->closed() == !served.has_value());
    HEDDLE_CHECK(served || !served.error().message.empty());
    if (!served) {
      return;
    }
    HEDDLE_CHECK(*served && area->served().get() == ticket);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) {
    const std::span<const std::uint8_t> input(data + 1, size - 1);
    data[0] % 2 == 0 ? try_geometry(input) : try_jobs(input);
  }
  return 0;
}
