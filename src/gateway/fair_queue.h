#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace heddle::gateway {

/// Things of several clients that wait: clients take turns, and what one of them has waits in its
/// order.
template <class T>
class FairQueue {
 public:
  [[nodiscard]] bool empty() const { return turns_.empty(); }

  void push_back(const std::string& client, T thing) {
    waiting_of(client).push_back(std::move(thing));
  }
  /// Before what else this client has; its turn comes after those of the others.
  void push_front(const std::string& client, T thing) {
    waiting_of(client).push_front(std::move(thing));
  }

  /// The first thing of the client whose turn it is; nothing where the queue is empty.
  std::optional<T> pop() {
    if (turns_.empty()) {
      return std::nullopt;
    }
    std::string client = std::move(turns_.front());
    turns_.pop_front();
    const auto waiting = waiting_.find(client);
    std::optional<T> thing(std::move(waiting->second.front()));
    waiting->second.pop_front();
    if (waiting->second.empty()) {
      waiting_.erase(waiting);
    } else {
      turns_.push_back(std::move(client));
    }
    return thing;
  }

 private:
  std::deque<T>& waiting_of(const std::string& client) {
    const auto [waiting, added] = waiting_.try_emplace(client);
    if (added) {
      turns_.push_back(client);
    }
    return waiting->second;
  }

  std::map<std::string, std::deque<T>> waiting_{};  ///< None empty.
  std::deque<std::string> turns_{};                 ///< The clients of waiting_.
};

}  // namespace heddle::gateway
