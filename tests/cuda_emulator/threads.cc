#include "cuda_emulator/threads.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_emulator/fiber.h"
#include "cuda_emulator/thread_api.h"

#include <pthread.h>
#include <sys/mman.h>

// The kernels' static __shared__ variables, which the shim puts in one section.
extern "C" {
[[gnu::weak, gnu::visibility("hidden")]] extern std::byte __start_heddle_shared[];
[[gnu::weak, gnu::visibility("hidden")]] extern std::byte __stop_heddle_shared[];
}

namespace emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStackBytes = 128 * 1024;
/// Of the window of shared memory: what is aligned to more than 16 there is so by the kernel.
constexpr std::uint32_t kWindowStart = 16;

/// Anonymous memory with a page before it or behind it that faults.
std::byte* map_guarded(std::size_t bytes, std::size_t guard_at) {
  void* memory = mmap(nullptr,
                      bytes + kPage,
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1,
                      0);
  if (memory == MAP_FAILED) {
    std::perror("emulator: mmap");
    std::abort();
  }
  auto* base = static_cast<std::byte*>(memory);
  mprotect(base + guard_at, kPage, PROT_NONE);
  return base;
}

struct PendingCopy {
  void* target;
  const void* source;
  unsigned valid;
};

using Product = std::function<void()>;

struct Thread {
  Fiber fiber;
  Dim index{};
  unsigned number = 0;                           ///< Within the block.
  std::vector<std::vector<PendingCopy>> groups;  ///< Committed, oldest first.
  std::vector<PendingCopy> uncommitted;
  std::vector<std::vector<Product>> product_groups;  ///< Likewise.
  std::vector<Product> uncommitted_products;
  std::vector<Product> running_products;  ///< The launch may end in the midst of one.
  bool unseen = false;                    ///< Copies have happened that products may not see.
  bool begun = false;                     ///< begin_products() was called.
};

/// Which lanes of a warp, bit by bit, can run or wait; those that do neither have ended.
struct Warp {
  std::uint32_t ready = 0;
  std::uint32_t at_warp = 0;   ///< Have handed in for the current exchange.
  std::uint32_t at_block = 0;  ///< Wait for the block.
  unsigned exchange = 0;  ///< Exchanges done. The slots alternate, so that a lane may be one ahead.
  std::array<Slots, 2> slots{};
};

/// The turn that the lanes of a warp take: each that can run does so once, from barrier to barrier.
/// The order is 0 .. 31, each ^ `flip`.
struct Turn {
  Warp* warp = nullptr;
  Thread* lanes = nullptr;  ///< The warp's threads.
  unsigned flip = 0;
  unsigned next = 0;  ///< How many have had it.
  unsigned lane = 0;  ///< Whose it is.
};

/// All there is of the launch that runs. One at a time, so that threads find it without an
/// argument, as CUDA's built-in variables have none.
struct Machine {
  Machine()
      : stacks(kBlockThreadsMax),
        threads(kBlockThreadsMax),
        warps(kBlockThreadsMax / kWarpThreads) {
    for (std::byte*& stack : stacks) {
      stack = map_guarded(kStackBytes, 0) + kPage;
    }
    constexpr std::size_t kSharedMap = (kSharedBytesMax + kPage - 1) / kPage * kPage;
    shared_end = map_guarded(kSharedMap, kSharedMap) + kSharedMap;
  }

  std::uint64_t random() {  // splitmix64
    std::uint64_t z = (seed += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  std::vector<std::byte*> stacks;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::byte* shared_end = nullptr;
  std::uint64_t seed = 0;
  const char* failure = "";

  // Of the launch:
  void (*entry)(const void*) = nullptr;
  const void* params = nullptr;
  Dim grid{};
  Dim block{};
  Dim block_at{};
  unsigned thread_count = 0;
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  Fiber scheduler;
  Turn turn;
  Thread* current = nullptr;  ///< The thread that runs; nullptr while the scheduler does.
  bool failed = false;
  pthread_t owner{};  ///< The OS thread of the launch.
};

std::mutex launching;
Machine* machine = nullptr;  // Made by the first launch, never destroyed.

constexpr std::uint32_t kAllLanes = 0xffffffffU;

std::uint32_t own_bit() {
  return 1U << machine->turn.lane;
}

/// Gives the turn to the next lane that can run; nullptr: all have had it, or the launch has
/// failed.
Thread* next_lane() {
  Turn& turn = machine->turn;
  while (turn.next < kWarpThreads && !machine->failed) {
    const unsigned lane = turn.next++ ^ turn.flip;
    if ((turn.warp->ready >> lane & 1U) != 0) {
      turn.lane = lane;
      return &turn.lanes[lane];
    }
  }
  return nullptr;
}

/// The thread that runs goes no further until it has a turn again. Lanes hand over to each other:
/// of all that an emulated kernel does, this is done most often.
void hand_over() {
  Thread& self = *machine->current;
  machine->current = next_lane();
  Fiber::switch_to(self.fiber,
                   machine->current != nullptr ? machine->current->fiber : machine->scheduler);
}

void end_thread() {
  machine->turn.warp->ready &= ~own_bit();
  hand_over();
}

void run_thread() {
  machine->entry(machine->params);
  end_thread();
}

// The numbers 0 .. n - 1 in an order that `random` chooses: forwards or backwards from anywhere.
unsigned nth(unsigned i, unsigned n, std::uint64_t random) {
  const auto start = static_cast<unsigned>((random >> 1U) % n);
  return (random & 1U) != 0 ? (start + i) % n : (start + n - i) % n;
}

/// Runs the lanes of a warp, turn by turn, until each has ended or waits for the block.
void run_warp(unsigned number) {
  Warp& warp = machine->warps[number];
  while (warp.ready != 0 && !machine->failed) {
    machine->turn = {.warp = &warp,
                     .lanes = &machine->threads[std::size_t{number} * kWarpThreads],
                     .flip = static_cast<unsigned>(machine->random() % kWarpThreads)};
    machine->current = next_lane();
    Fiber::switch_to(machine->scheduler, machine->current->fiber);
  }
  if (warp.at_warp != 0 && !machine->failed) {
    machine->failed = true;
    machine->failure = "a lane waits for others of its warp that never come";
  }
}

/// Runs the threads of a block from barrier to barrier until all have ended.
void run_block_threads() {
  const unsigned warps = (machine->thread_count + kWarpThreads - 1) / kWarpThreads;
  bool ended = false;
  while (!ended && !machine->failed) {
    const std::uint64_t order = machine->random();
    for (unsigned i = 0; i < warps && !machine->failed; ++i) {
      run_warp(nth(i, warps, order));
    }
    ended = true;
    for (unsigned i = 0; i < warps; ++i) {
      Warp& warp = machine->warps[i];
      warp.ready = std::exchange(warp.at_block, 0);
      ended = ended && warp.ready == 0;
    }
  }
}

// Stacks begin on different lines of a cache, where all that lie a page apart would share a few.
std::size_t stack_colour(unsigned thread) {
  return thread * std::size_t{5 * 64} % kPage;
}

void run_block() {
  std::memset(machine->shared, 0xff, machine->shared_bytes);
  if (__start_heddle_shared != nullptr) {
    std::memset(__start_heddle_shared,
                0xff,
                static_cast<std::size_t>(__stop_heddle_shared - __start_heddle_shared));
  }
  for (unsigned i = 0; i < machine->thread_count; ++i) {
    Thread& thread = machine->threads[i];
    thread.fiber.prepare(machine->stacks[i] + kStackBytes - stack_colour(i), run_thread);
    thread.number = i;
    thread.index = {.x = i % machine->block.x,
                    .y = i / machine->block.x % machine->block.y,
                    .z = i / machine->block.x / machine->block.y};
    thread.groups.clear();
    thread.uncommitted.clear();
    thread.product_groups.clear();
    thread.uncommitted_products.clear();
    thread.unseen = false;
    thread.begun = false;
  }
  for (unsigned first = 0; first < machine->thread_count; first += kWarpThreads) {
    const unsigned lanes = std::min(machine->thread_count - first, kWarpThreads);
    Warp& warp = machine->warps[first / kWarpThreads];
    warp.ready = kAllLanes >> (kWarpThreads - lanes);
    warp.at_warp = 0;
    warp.at_block = 0;
  }
  run_block_threads();
}

constexpr std::array<int, 3> kFaults{SIGSEGV, SIGBUS, SIGILL};

/// Catches a kernel's faults for as long as it lives; those of others go where they went before.
class FaultCatcher {
 public:
  FaultCatcher() {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // The handler never returns from a kernel's fault.
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      sigaction(kFaults[i], &action, &before_[i]);
    }
  }
  ~FaultCatcher() { restore(); }
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;

 private:
  static void restore() {
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      sigaction(kFaults[i], &before_[i], nullptr);
    }
  }

  static void on_fault(int signal, siginfo_t* /*info*/, void* /*context*/) {
    if (machine->current == nullptr || pthread_equal(pthread_self(), machine->owner) == 0) {
      restore();  // Not a kernel's: it faults again when this returns.
      return;
    }
    // SIGILL is what -fsanitize-trap=alignment makes of a misaligned access.
    fail(signal == SIGILL ? "a misaligned access or a trap" : "an illegal address");
  }

  static inline std::array<struct sigaction, kFaults.size()> before_{};
};

bool launch_fits(Dim grid, Dim block, std::size_t shared_bytes) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool blocks = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU &&
                      grid.y <= 65535 && grid.z <= 65535;
  return blocks && threads > 0 && threads <= kBlockThreadsMax && block.z <= 64 &&
         shared_bytes <= kSharedBytesMax;
}

}  // namespace

const Dim& thread_index() {
  return machine->current->index;
}
const Dim& block_index() {
  return machine->block_at;
}
const Dim& block_dim() {
  return machine->block;
}
const Dim& grid_dim() {
  return machine->grid;
}
unsigned lane() {
  return machine->turn.lane;
}
std::byte* dynamic_shared() {
  return machine->shared;
}

void sync_block() {
  Warp& warp = *machine->turn.warp;
  warp.ready &= ~own_bit();
  warp.at_block |= own_bit();
  hand_over();
}

const Slots& exchange(const void* value, std::size_t bytes) {
  Warp& warp = *machine->turn.warp;
  Slots& slots = warp.slots[warp.exchange % 2];
  std::byte* const slot = slots[machine->turn.lane].data();
  if (bytes == sizeof(std::uint32_t)) {  // What most exchange, and then it is no call.
    std::memcpy(slot, value, sizeof(std::uint32_t));
  } else {
    std::memcpy(slot, value, bytes);
  }
  warp.at_warp |= own_bit();
  if (warp.at_warp != kAllLanes) {
    warp.ready &= ~own_bit();
    hand_over();
    return slots;
  }
  warp.at_warp = 0;
  ++warp.exchange;
  warp.ready = kAllLanes;
  return slots;
}

void copy_async_16(void* target, const void* source, unsigned valid) {
  machine->current->uncommitted.push_back({target, source, valid});
}

void commit_copies() {
  Thread& self = *machine->current;
  self.groups.push_back(std::move(self.uncommitted));
  self.uncommitted.clear();
}

void wait_copies(unsigned left) {
  Thread& self = *machine->current;
  while (self.groups.size() > left) {
    for (const PendingCopy& copy : self.groups.front()) {
      std::memset(copy.target, 0, 16);
      std::memcpy(copy.target, copy.source, copy.valid);
      self.unseen = true;
    }
    self.groups.erase(self.groups.begin());
  }
}

void begin_products() {
  machine->current->begun = true;
}

void show_copies() {
  machine->current->unseen = false;
}

void begin_product(std::function<void()> product) {
  Thread& self = *machine->current;
  const bool unseen = std::any_of(machine->threads.begin(),
                                  machine->threads.begin() + machine->thread_count,
                                  [](const Thread& thread) { return thread.unseen; });
  if (!self.begun || unseen) {
    product = nullptr;  // This function does not return, and nothing is destroyed.
    fail(self.begun ? "a product may not see what was copied" : "a product that was not begun");
  }
  self.uncommitted_products.push_back(std::move(product));
}

void commit_products() {
  Thread& self = *machine->current;
  self.product_groups.push_back(std::move(self.uncommitted_products));
  self.uncommitted_products.clear();
}

void wait_products(unsigned left) {
  Thread& self = *machine->current;
  while (self.product_groups.size() > left) {
    self.running_products = std::move(self.product_groups.front());
    self.product_groups.erase(self.product_groups.begin());
    for (const Product& product : self.running_products) {
      product();
    }
  }
  self.begun = false;
}

std::uint32_t shared_address(const std::byte* at) {
  return kWindowStart + static_cast<std::uint32_t>(at - (machine->shared_end - kSharedBytesMax));
}

const std::byte* shared_at(std::uint32_t address) {
  const std::byte* at = machine->shared_end - kSharedBytesMax + address - kWindowStart;
  if (at < machine->shared || at >= machine->shared_end) {
    fail("a product of what is not the block's shared memory");
  }
  return at;
}

void fail(const char* what) {
  machine->failed = true;
  machine->failure = what;
  end_thread();
  std::abort();  // Nobody resumes a thread that has ended.
}

const char* last_failure() {
  return machine == nullptr ? "" : machine->failure;
}

void seed_orders(std::uint64_t seed) {
  const std::lock_guard lock(launching);
  if (machine == nullptr) {
    machine = new Machine;
  }
  machine->seed = seed;
}

bool run(void* entry,
         Dim grid,
         Dim block,
         std::size_t shared_bytes,
         const void* params,
         std::size_t param_bytes) {
  const std::lock_guard lock(launching);
  if (machine == nullptr) {
    machine = new Machine;
  }
  constexpr std::size_t kParamBytesMax = 4096;
  if (!launch_fits(grid, block, shared_bytes) || param_bytes > kParamBytesMax) {
    machine->failure = "a launch that no device takes";
    return false;
  }
  machine->entry = reinterpret_cast<void (*)(const void*)>(entry);
  machine->params = params;
  machine->grid = grid;
  machine->block = block;
  machine->thread_count = block.x * block.y * block.z;
  machine->shared_bytes = (shared_bytes + 15) / 16 * 16;
  machine->shared = machine->shared_end - machine->shared_bytes;
  machine->failed = false;
  machine->owner = pthread_self();
  for (Warp& warp : machine->warps) {
    warp.exchange = 0;
  }
  const FaultCatcher catcher;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const bool backwards = machine->random() % 2 == 1;
  for (std::uint64_t i = 0; i < blocks && !machine->failed; ++i) {
    const std::uint64_t at = backwards ? blocks - 1 - i : i;
    machine->block_at = {.x = static_cast<unsigned>(at % grid.x),
                         .y = static_cast<unsigned>(at / grid.x % grid.y),
                         .z = static_cast<unsigned>(at / grid.x / grid.y)};
    run_block();
  }
  if (machine->failed) {
    std::fprintf(stderr, "emulated kernel: %s\n", machine->failure);
  }
  return !machine->failed;
}

}  // namespace emulator
