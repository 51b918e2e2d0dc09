#include "weave/job_area.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "ops/attention.h"

namespace heddle::weave {
namespace {

constexpr std::uint64_t kMagic = 0x68656464'6c657732U;  // Of this form of the memory.
constexpr std::size_t kLine = 64;  // What the two sides write lies on different cache lines.
constexpr std::uint32_t kTurns = 2;

std::size_t lines(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) * 4 + kLine - 1) / kLine * kLine;
}

Error refuse(const std::string& field, const std::string& value, const std::string& right) {
  return {Code::kInvalidArgument, "weave: " + field + " is " + value + "; " + right};
}

/// Whether `value` is one of [least, most].
Result<void> check_range(const char* field,
                         std::int64_t value,
                         std::int64_t least,
                         std::int64_t most) {
  return value >= least && value <= most ? Result<void>()
                                         : refuse(field,
                                                  std::to_string(value),
                                                  "from " + std::to_string(least) + " to " +
                                                      std::to_string(most) + " it may be");
}

/// Keys and values of all heads and tokens lie within a block, and blocks within a page.
Result<void> check_place(const Geometry& g, std::int64_t layer) {
  const LayerPlace& place = g.places[static_cast<std::size_t>(layer)];
  const std::string name = "layer " + std::to_string(layer);
  const ops::PagedKv of_token{
      .block_tokens = 1, .kv_heads = g.kv_heads, .head_dim = g.head_dim, .dtype = kv_dtype(g)};
  const std::int64_t side = of_token.side_bytes();
  const std::int64_t aligned = of_token.scaled() ? 2 : 4;
  if (place.group < 0 || place.group >= g.groups) {
    return refuse(name + "'s group", std::to_string(place.group), "there are fewer");
  }
  if (place.block_bytes <= 0 || place.block_bytes > g.page_bytes) {
    return refuse(
        name + "'s block", std::to_string(place.block_bytes) + " bytes", "a page holds it whole");
  }
  if (place.block_tokens <= 0 || place.block_tokens > place.block_bytes / side) {
    return refuse(name + "'s block",
                  std::to_string(place.block_tokens) + " tokens",
                  "they have to fit its bytes");
  }
  for (const std::int64_t offset : {place.key_offset, place.value_offset}) {
    if (offset < 0 || offset > place.block_bytes - side * place.block_tokens ||
        offset % aligned != 0) {
      return refuse(
          name + "'s offset in a block", std::to_string(offset), "keys and values have to fit");
    }
  }
  return {};
}

}  // namespace

Result<void> check_geometry(const Geometry& g, std::string_view kernels, std::int64_t page_bytes) {
  const std::string_view theirs(g.kernels.data(), ::strnlen(g.kernels.data(), g.kernels.size()));
  if (!kernels.empty() && theirs != kernels) {
    return refuse("the instruction set", std::string(theirs), "here it is " + std::string(kernels));
  }
  if (g.page_bytes != page_bytes) {
    return refuse("a page",
                  std::to_string(g.page_bytes) + " bytes",
                  "here it has " + std::to_string(page_bytes));
  }
  const std::array checks{check_range("heads", g.heads, 1, 4096),
                          check_range("kv_heads", g.kv_heads, 1, g.heads),
                          check_range("head_dim", g.head_dim, 1, ops::kAttentionHeadDimMax),
                          check_range("border", g.border, 1, 4096),
                          check_range("layers", g.layers, 1, kLayersMax),
                          check_range("groups", g.groups, 1, kGroupsMax),
                          check_range("rows", g.rows, 1, kRowsMax),
                          check_range("blocks", g.blocks, 1, kBlocksMax)};
  for (const Result<void>& checked : checks) {
    if (!checked) {
      return checked;
    }
  }
  const std::array types{ops::DType::kF32, ops::DType::kBf16, ops::DType::kI8, ops::DType::kF8};
  if (std::ranges::none_of(
          types, [&](ops::DType type) { return g.kv == static_cast<std::int64_t>(type); })) {
    return refuse(
        "kv", std::to_string(g.kv), "the number of float32, bfloat16, int8 or FP8 it has to be");
  }
  if (g.heads % g.kv_heads != 0) {
    return refuse("heads", std::to_string(g.heads), "a multiple of kv_heads it has to be");
  }
  for (std::int64_t layer = 0; layer < g.layers; ++layer) {
    if (const auto place = check_place(g, layer); !place) {
      return place;
    }
  }
  return {};
}

std::int64_t layers_of(const Geometry& geometry, std::uint32_t groups) {
  return std::count_if(
      geometry.places.begin(),
      geometry.places.begin() + geometry.layers,
      [groups](const LayerPlace& place) { return (groups >> place.group & 1U) != 0; });
}

void Ticket::raise(std::uint32_t value) {
  word_.store(value, std::memory_order_seq_cst);
  // Either a sleeper has counted itself by now, or it sees the new word before it sleeps.
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    futex_wake_all(word_);
  }
}

void Ticket::close() {
  word_.fetch_or(~kMask, std::memory_order_seq_cst);
  futex_wake_all(word_);
}

bool Ticket::wait_past(std::uint32_t old, Duration look, Duration patience) {
  const Instant began = steady_now();
  for (int spin = 0;; ++spin) {
    const std::uint32_t now = word_.load(std::memory_order_acquire);
    if (now != old) {
      return (now & kMask) != old;  // Else it was closed as it is.
    }
    spin_pause();
    if (spin % 32 != 31) {
      continue;
    }
    const Duration gone = steady_now() - began;
    if (gone >= patience) {
      return false;
    }
    if (gone >= look) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      futex_wait(word_, old, patience - gone);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

/// The beginning of the memory; behind it the tables, the queries and the states.
struct JobArea::Header {
  std::uint64_t magic = kMagic;
  Geometry geometry{};
  alignas(kLine) Ticket posted{};
  alignas(kLine) Job job{};
  alignas(kLine) Ticket served{};
  alignas(kLine) std::atomic<std::uint32_t> closed{0};
  alignas(kLine) device::Flag layer_posted{0};
  alignas(kLine) device::Flag layer_served{0};
};

struct JobArea::Layout {
  explicit Layout(const Geometry& g)
      : table(lines(g.rows + g.groups * g.rows * g.blocks)),
        queries(lines(g.rows * g.heads * g.head_dim)),
        states(lines(g.rows * g.heads * (g.head_dim + 2))) {}
  [[nodiscard]] std::size_t bytes() const {
    return sizeof(Header) + kTurns * table + queries + states;
  }
  std::size_t table;
  std::size_t queries;
  std::size_t states;
};

Result<std::shared_ptr<JobArea>> JobArea::create(const Geometry& geometry) {
  if (const auto checked = check_geometry(geometry, {}, geometry.page_bytes); !checked) {
    return checked.error();
  }
  auto memory = MemoryFile::create("heddle-guests", Layout(geometry).bytes());
  if (!memory) {
    return Error{memory.error().code, "make an area for guests: " + memory.error().message};
  }
  new (memory->data()) Header{.geometry = geometry};
  return std::shared_ptr<JobArea>(new JobArea(std::move(*memory), geometry));
}

Result<std::shared_ptr<JobArea>> JobArea::attach(int fd) {
  const std::string attempt = "attach an area for guests at descriptor " + std::to_string(fd);
  auto memory = MemoryFile::attach(fd, sizeof(Header));
  if (!memory) {
    return Error{memory.error().code, attempt + ": " + memory.error().message};
  }
  const Header& header = *std::launder(reinterpret_cast<const Header*>(memory->data()));
  if (header.magic != kMagic) {
    return Error{Code::kInvalidArgument, attempt + ": it is of another version"};
  }
  const Geometry geometry = header.geometry;  // What is checked is a copy that nobody changes.
  if (const auto checked = check_geometry(geometry, {}, geometry.page_bytes); !checked) {
    return Error{Code::kInvalidArgument, attempt + ": " + checked.error().message};
  }
  if (Layout(geometry).bytes() != memory->bytes()) {
    return Error{
        Code::kInvalidArgument,
        attempt + ": its " + std::to_string(memory->bytes()) + " bytes are not what it says"};
  }
  return std::shared_ptr<JobArea>(new JobArea(std::move(*memory), geometry));
}

JobArea::Header& JobArea::header() const {
  return *std::launder(reinterpret_cast<Header*>(memory_.data()));
}

Ticket& JobArea::posted() {
  return header().posted;
}

Ticket& JobArea::served() {
  return header().served;
}

void JobArea::close() {
  header().closed.store(1, std::memory_order_seq_cst);
  header().posted.close();
  header().served.close();
}

bool JobArea::closed() const {
  return header().closed.load(std::memory_order_acquire) != 0;
}

device::Flag& JobArea::layer_posted() {
  return header().layer_posted;
}

device::Flag& JobArea::layer_served() {
  return header().layer_served;
}

JobArea::Job& JobArea::job() {
  return header().job;
}

std::span<std::int32_t> JobArea::table(std::uint32_t step) {
  const Layout layout(geometry_);
  return {reinterpret_cast<std::int32_t*>(memory_.data() + sizeof(Header) +
                                          step % kTurns * layout.table),
          static_cast<std::size_t>(geometry_.rows +
                                   geometry_.groups * geometry_.rows * geometry_.blocks)};
}

std::span<float> JobArea::queries() {
  const Layout layout(geometry_);
  return {reinterpret_cast<float*>(memory_.data() + sizeof(Header) + kTurns * layout.table),
          static_cast<std::size_t>(geometry_.rows * geometry_.heads * geometry_.head_dim)};
}

std::span<float> JobArea::states() {
  const Layout layout(geometry_);
  return {reinterpret_cast<float*>(memory_.data() + sizeof(Header) + kTurns * layout.table +
                                   layout.queries),
          static_cast<std::size_t>(geometry_.rows * geometry_.heads * (geometry_.head_dim + 2))};
}

}  // namespace heddle::weave
