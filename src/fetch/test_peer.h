#pragma once

// For tests only: another host's cache, in memory.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fetch/digest.h"
#include "fetch/peer.h"
#include "fetch/test_source.h"

namespace heddle::fetch {

/// Has these contents, and fails as a test wants. One thread.
class TestPeer final : public Peer {
 public:
  explicit TestPeer(std::string name) : name_(std::move(name)) {}

  std::map<std::string, std::string> contents{};
  std::optional<std::uint64_t> dies_after{};  ///< So many bytes of each range.
  std::optional<std::uint64_t> truncates{};   ///< Says after so many bytes that this was all.
  int reads = 0;
  std::vector<Range> asked{};
  bool distrusted = false;

  [[nodiscard]] const std::string& name() const override { return name_; }
  Result<Listing> list(const std::string& /*model*/, const std::stop_token& /*stop*/) override {
    if (contents.empty()) {
      return Error{Code::kNotFound, "it has no such model"};
    }
    Listing listing;
    for (const auto& [name, text] : contents) {
      listing.objects.push_back({.name = name, .bytes = text.size(), .sha256 = sha256_of(text)});
    }
    return listing;
  }
  Result<void> read(const std::string& /*model*/,
                    const Object& object,
                    Range range,
                    const Sink& sink,
                    const std::stop_token& stop) override {
    ++reads;
    asked.push_back(range);
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    const auto found = contents.find(object.name);
    if (found == contents.end()) {
      return Error{Code::kNotFound, "it has no such file"};
    }
    const std::uint64_t most =
        std::min(dies_after.value_or(range.bytes()), truncates.value_or(range.bytes()));
    const std::uint64_t given = std::min(most, range.bytes());
    if (given > 0) {
      const std::vector<std::byte> bytes = bytes_of(found->second.substr(range.begin, given));
      if (Result<void> taken = sink(range.begin, bytes); !taken) {
        return taken;
      }
    }
    return dies_after && *dies_after <= given && given < range.bytes()
               ? Result<void>(Error{Code::kUnavailable, "it has died"})
               : Result<void>();
  }
  void distrust(const std::string& /*model*/) override { distrusted = true; }

 private:
  std::string name_;
};

}  // namespace heddle::fetch
