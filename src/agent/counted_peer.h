#pragma once

#include <memory>
#include <string>

#include "agent/fetch_progress.h"
#include "fetch/peer.h"

namespace heddle::agent {

/// Another host's cache, of which a fetch counts what it gives. Any thread.
class CountedPeer final : public fetch::Peer {
 public:
  CountedPeer(std::shared_ptr<fetch::Peer> peer, std::shared_ptr<FetchProgress> progress)
      : peer_(std::move(peer)), progress_(std::move(progress)) {}

  [[nodiscard]] const std::string& name() const override { return peer_->name(); }
  [[nodiscard]] Result<fetch::Listing> list(const std::string& model,
                                            const std::stop_token& stop) override {
    return peer_->list(model, stop);
  }
  [[nodiscard]] Result<void> read(const std::string& model,
                                  const fetch::Object& object,
                                  fetch::Range range,
                                  const fetch::Sink& sink,
                                  const std::stop_token& stop) override {
    return peer_->read(
        model,
        object,
        range,
        [&](std::uint64_t offset, std::span<const std::byte> bytes) {
          progress_->gave(peer_->name(), bytes.size());
          return sink(offset, bytes);
        },
        stop);
  }
  void distrust(const std::string& model) override { peer_->distrust(model); }

 private:
  std::shared_ptr<fetch::Peer> peer_;
  std::shared_ptr<FetchProgress> progress_;
};

}  // namespace heddle::agent
