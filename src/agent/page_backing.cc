#include "agent/page_backing.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "base/log.h"

namespace heddle::agent {

PageBacking::~PageBacking() {
  ending_ = true;
  thread_.join();
}

void PageBacking::release(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    if (const Result<void> released = arena_.release(page.value()); !released) {
      log::warning("page not released", {{"error", released.error().message}});
    }
  }
}

/// Takes as long as clearing the memory does, so it is not for the loop. Whoever has the host's
/// memory now gives it back some time.
void PageBacking::restore(std::span<const PageId> pages, std::function<void()> done) {
  boost::asio::post(
      thread_, [this, pages = std::vector(pages.begin(), pages.end()), done = std::move(done)] {
        constexpr auto kPause = std::chrono::milliseconds(100);
        bool said = false;
        for (const PageId page : pages) {
          for (Result<void> backed = arena_.restore(page.value()); !backed && !ending_;
               backed = arena_.restore(page.value())) {
            if (!std::exchange(said, true)) {
              log::warning("device stays smaller for now", {{"error", backed.error().message}});
            }
            std::this_thread::sleep_for(kPause);
          }
        }
        done();
      });
}

}  // namespace heddle::agent
