#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"
#include "cluster/registry.h"

namespace heddle::cluster {

/// What members are; each kind has numbers of its own.
enum class Role : std::uint8_t { kHost, kGateway };

/// Who a member is, and which of its lives this is.
struct Identity {
  std::uint16_t id = 0;           ///< From 1 on; of the name, for ever.
  std::uint64_t incarnation = 0;  ///< From 1 on; greater in each life.
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// What a process says to be.
struct MemberOptions {
  Role role = Role::kHost;
  std::string name{};                       ///< One word of a key.
  std::string address{};                    ///< Where others reach it; may be empty.
  Duration life = std::chrono::seconds(3);  ///< Of its record, which is put three times in it.
};

/// A process as a member of the cluster: its record `hosts/NAME` or `gateways/NAME` lives as long
/// as it does. Where the registry is away it goes on, and puts its record again when that is back.
class Member {
 public:
  /// Becomes a member. kFailedPrecondition where another process of this name is one, and its
  /// record still lives; kResourceExhausted where all 65535 ids are given; else as Registry fails.
  /// @param gone  Called once, with why, if another takes the name while this one is a member.
  static boost::asio::awaitable<Result<std::unique_ptr<Member>>> join(
      boost::asio::any_io_executor executor,
      std::shared_ptr<Registry> registry,
      MemberOptions options,
      std::function<void(std::string_view)> gone);

  /// The record stays for its life: see leave().
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] const Identity& identity() const;
  /// Removes the record, so that the name is free at once.
  boost::asio::awaitable<Result<void>> leave();

 private:
  class Impl;
  explicit Member(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Another member, as its record says.
struct MemberRecord {
  std::string address{};
  Identity identity{};
  std::uint64_t holder = 0;  ///< Of this life of it.
};
[[nodiscard]] std::string write_member_record(const MemberRecord& record);
/// kCorrupt where it is none.
[[nodiscard]] Result<MemberRecord> parse_member_record(std::string_view text);

/// Where records of members are: "hosts/" or "gateways/".
[[nodiscard]] std::string_view prefix_of(Role role);

}  // namespace heddle::cluster
