#include "external/patience.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"

namespace heddle::external {

using namespace std::chrono_literals;

namespace {

constexpr Duration kFirstLook = 50us;
constexpr Duration kLongestLook = 10ms;

}  // namespace

bool wait_until(const std::function<bool()>& done, Duration patience) {
  const Instant deadline = steady_now() + patience;
  for (Duration pause = kFirstLook; !done(); pause = std::min(pause * 2, kLongestLook)) {
    if (steady_now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace heddle::external
