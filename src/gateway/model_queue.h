#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace heddle::gateway {

/// The requests of one model that were admitted and have not ended, and whose they are. Loop
/// thread.
class ModelQueue {
 public:
  /// Places that some requests have; given back when it is destroyed, whatever they came to.
  class Places {
   public:
    Places() = default;
    ~Places() { give_back(); }
    Places(Places&& other) noexcept { *this = std::move(other); }
    Places& operator=(Places&& other) noexcept;
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;

   private:
    friend class ModelQueue;
    void give_back();

    std::shared_ptr<struct QueueCounts> counts_{};
    std::string share_{};
    std::int64_t count_ = 0;
  };

  ModelQueue();

  /// Whether `count` requests more of `share` have room where there are `limit` places. A share
  /// has at most kFreeTimes the places that are free as the last of its requests comes: alone
  /// nearly all of them, and there is always room for who comes later. (A. K. Choudhury and E. L.
  /// Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998, equation 1.)
  /// Those of the empty share are not told apart and may have all.
  [[nodiscard]] bool has_room(std::int64_t limit,
                              const std::string& share,
                              std::int64_t count) const;

  [[nodiscard]] Places take(const std::string& share, std::int64_t count);

  [[nodiscard]] std::int64_t size() const;
  /// Of one share.
  [[nodiscard]] std::int64_t size_of(const std::string& share) const;

 private:
  static constexpr std::int64_t kFreeTimes = 7;

  std::shared_ptr<QueueCounts> counts_;
};

}  // namespace heddle::gateway
