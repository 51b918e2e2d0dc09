#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "core/serving.h"
#include "fetch/model_fetch.h"

namespace heddle::agent {

/// How one model's fetch goes: what is shown of it, and the lines of the log. Any thread.
class FetchProgress final : public fetch::PullWatch {
 public:
  FetchProgress(std::string model, std::string from, std::string kind);

  /// So many bytes have come over the network.
  void took(std::uint64_t bytes, Instant now);
  /// So many of these were given by another host's cache.
  void gave(const std::string& host, std::uint64_t bytes);
  /// As it is now. `fetched_bytes` is of this fetch.
  [[nodiscard]] core::FetchStatus status(Instant now) const;

  void waits() override;
  void removed(const std::vector<std::string>& models) override;
  void begins(std::span<const fetch::Job> files, std::span<const fetch::Object> left_out) override;
  void moved(std::size_t file, std::uint64_t bytes) override;
  void checking(std::size_t /*file*/) override {}
  void came(std::size_t /*file*/) override {}
  void retries(const std::string& why, Duration wait) override;
  void streams() override;
  void peer_failed(const std::string& why) override;

 private:
  const std::string model_;
  const std::string from_;
  const std::string kind_;

  mutable std::mutex mutex_{};          // Guards all below.
  std::vector<std::uint64_t> there_{};  ///< By file.
  std::uint64_t total_bytes_ = 0;
  std::uint64_t fetched_bytes_ = 0;
  std::map<std::string, std::uint64_t> given_{};  ///< By hosts that gave something.
  Instant window_began_{};                        ///< Of measuring the rate,
  std::uint64_t window_bytes_ = 0;                ///< and what has come in it.
  double bytes_per_second_ = 0;
};

}  // namespace heddle::agent
