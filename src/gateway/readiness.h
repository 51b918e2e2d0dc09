#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/descriptor.h"

namespace heddle::gateway {

/// Tells sockets of a loop when something has come, or room has come to send. The kernel is told of
/// each socket once, where Asio tells it anew for each wait: of a forwarded request that was a
/// tenth. One epoll of ours, for which the loop waits as for a socket. A service of Asio's: one a
/// loop, made by the first `use_service<Readiness>(loop)`. Loop thread.
class Readiness : public boost::asio::execution_context::service {
 public:
  /// What there is of a socket since it was told of last.
  struct News {
    bool readable = false;
    bool writable = false;
    bool hung_up = false;  ///< By one side at least; stays so.
  };
  class Listener {
   public:
    virtual void on_news(const News& news) = 0;
    /// The loop ends: whatever waits for it is to be dropped.
    virtual void on_loop_end() = 0;

   protected:
    ~Listener() = default;
  };

  using key_type = Readiness;
  inline static boost::asio::execution_context::id id{};
  explicit Readiness(boost::asio::execution_context& loop);
  /// False where the system had no descriptor left: then nothing can be added.
  [[nodiscard]] bool works() const { return news_.is_open(); }

  /// Until leave() the listener is told when the loop ends.
  void enter(Listener& listener) { listeners_.insert(&listener); }
  void leave(Listener& listener) { listeners_.erase(&listener); }
  /// News of the socket go to the listener until remove(). They come once for each change, so that
  /// who reads less than there is will not hear of the rest. False where the system takes no more.
  [[nodiscard]] bool add(int socket, Listener& listener);
  /// No news any more: to be called before the socket is closed.
  void remove(int socket);
  /// From now on one more, or one less, of the listeners waits: while any does, the loop has work.
  void expect();
  void unexpect();

 private:
  struct Entry {
    Listener* listener = nullptr;
    std::uint32_t serial = 0;  ///< Tells news of this socket from those of an earlier one.
  };

  void shutdown() override;
  void wait();
  void tell();

  Descriptor epoll_{};
  boost::asio::posix::stream_descriptor news_;  ///< Of epoll_, by another number.
  std::set<Listener*> listeners_{};
  std::vector<Entry> entries_{};  ///< By socket.
  std::uint32_t serials_ = 0;
  std::size_t expecting_ = 0;
  bool waiting_ = false;
  bool ended_ = false;
};

}  // namespace heddle::gateway
