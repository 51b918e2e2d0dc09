#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "api/conversation.h"
#include "base/time.h"

namespace heddle::gateway {

/// A response that a client has asked to be kept.
struct KeptResponse {
  std::string body{};  ///< As it was answered.
  /// All of its conversation and its answer, but for the instructions, which hold for one response.
  api::Turns conversation{};

  [[nodiscard]] std::size_t bytes() const {
    return body.size() + conversation.json.size() + conversation.system.size();
  }
};

/// Responses of /v1/responses that were asked for with `store`, in memory and for a while. What a
/// key has kept, no other key finds. Where there is no room the oldest go: of the key, where it is
/// at its bound, else of all. Loop thread.
class ResponseStore {
 public:
  struct Limits {
    std::size_t key_count = 1024;                   ///< Responses of one key.
    std::size_t key_bytes = std::size_t{4} << 20U;  ///< And their bytes.
    std::size_t count = 8192;                       ///< Of all.
    std::size_t bytes = std::size_t{64} << 20U;     ///< And their bytes.
    Duration age = std::chrono::hours(24);          ///< Older ones are gone.
  };

  explicit ResponseStore(Limits limits) : limits_(limits) {}

  /// `id` is new. One that alone is larger than a key's bound is not kept: false.
  bool keep(const std::string& tenant, const std::string& id, KeptResponse response, Instant now);
  /// Null where `tenant` has none of this id, or no longer.
  [[nodiscard]] std::shared_ptr<const KeptResponse> find(const std::string& tenant,
                                                         const std::string& id,
                                                         Instant now);
  /// Whether there was one.
  bool erase(const std::string& tenant, const std::string& id, Instant now);

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string tenant{};
    std::string id{};
    std::shared_ptr<const KeptResponse> response{};
    Instant kept{};
  };
  struct Share {
    std::map<std::uint64_t, std::size_t> sizes{};  ///< Bytes of its entries, the oldest first.
    std::size_t bytes = 0;
  };

  void remove(std::uint64_t entry);
  void expire(Instant now);

  Limits limits_;
  std::map<std::uint64_t, Entry> entries_{};  ///< By age.
  std::map<std::string, std::uint64_t> by_id_{};
  std::map<std::string, Share> shares_{};  ///< By tenant.
  std::size_t bytes_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace heddle::gateway
