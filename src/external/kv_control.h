#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"
#include "config/engine_config.h"
#include "external/kv_limit.h"
#include "external/probe.h"

namespace heddle::external {

/// The KV of one life of an elastic engine: what it uses, and how much it may have. Loop thread
/// only.
class KvControl {
 public:
  /// Names the segment in the engine's environment, unless `config` does, and removes what an
  /// earlier life left of that name. Null where its KV is not elastic.
  [[nodiscard]] static std::shared_ptr<KvControl> of(config::EngineConfig& config,
                                                     const std::string& model,
                                                     const std::string& directory);
  KvControl(const config::EngineConfig& config, std::string model, KvSegments segments);
  /// Removes the segment: the engine has ended.
  ~KvControl();
  KvControl(const KvControl&) = delete;
  KvControl& operator=(const KvControl&) = delete;

  /// It is ready and nobody has asked it anything yet: tells it that it may have its least. Fails
  /// where it runs without kvcached, or with one of another version.
  [[nodiscard]] Result<void> begin();
  /// Tells it how much KV it may have, now or at the next looks where it holds the lock.
  void limit(std::uint64_t bytes);
  /// What it says. kUnavailable for at most two seconds in which it holds the lock; then
  /// kDeadlineExceeded. Other errors as of KvSegments::read().
  [[nodiscard]] Result<KvUse> look(Instant now);
  /// Asks it for one token: it takes notice of its limit when it allocates. Says nothing of how
  /// that went; the next looks show it.
  boost::asio::awaitable<void> nudge();

 private:
  KvSegments segments_;
  Probe probe_;
  std::uint64_t least_ = 0;
  std::optional<std::uint64_t> untold_{};  ///< A limit that it has not been told yet.
  std::optional<Instant> locked_since_{};
};

}  // namespace heddle::external
