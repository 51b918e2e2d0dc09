#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "rpc/link.h"
#include "rpc/messages.h"

namespace heddle::worker {

/// What other threads send over the loop's link. Lives until the process ends, as the threads do.
class Outbox {
 public:
  /// With more than this unsent, whoever produces without being asked waits.
  static constexpr std::size_t kBacklogBytes = std::size_t{1} << 20U;

  /// Called on the loop.
  struct Handlers {
    std::function<void(const Error&)> on_failed{};  ///< The link takes no more.
    std::function<void()> on_relieved{};            ///< The backlog that somebody saw is gone.
  };

  /// `link` lives as long.
  Outbox(boost::asio::any_io_executor executor, rpc::Link& link, Handlers handlers);

  /// Any thread. What one thread sends arrives in order. Descriptors as the message wants them.
  void send(const rpc::ToServe& message, std::vector<rpc::Descriptor> descriptors = {});
  /// Whether the peer is far behind; if so, on_relieved follows when it no longer is. Any thread.
  [[nodiscard]] bool backlogged();
  /// The link's send queue is empty again. Loop thread.
  void link_drained();

 private:
  void flush();
  [[nodiscard]] std::size_t bytes() const { return waiting_bytes_ + link_.queued_bytes(); }

  boost::asio::any_io_executor executor_;
  rpc::Link& link_;
  Handlers handlers_;
  std::atomic<std::size_t> waiting_bytes_ = 0;
  std::atomic<bool> backlog_seen_ = false;
  std::mutex mutex_{};
  std::vector<rpc::Frame> waiting_{};  // Guarded by mutex_.
};

}  // namespace heddle::worker
