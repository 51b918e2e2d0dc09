#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

/// What the two ends of a link between hosts say to each other about the link itself. Whoever uses
/// the link sees none of it. rpc/greet_fields.h describes each message.
namespace heddle::rpc {

/// Which versions of what hosts say to each other a program speaks: this one and those between.
struct Versions {
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  friend bool operator==(const Versions&, const Versions&) = default;
};

/// Of this program. A version is raised where a message gets another meaning; the one before is
/// spoken on, so that hosts are upgraded one at a time.
[[nodiscard]] Versions host_versions();

/// The highest version that both speak. kFailedPrecondition, with both ranges, where there is none.
Result<std::uint32_t> common_version(const Versions& ours, const Versions& theirs);

/// What a link between hosts is for.
enum class LinkUse : std::uint8_t {
  kOrders,   ///< What managers, hosts and gateways say to each other.
  kEngines,  ///< A gateway's connections to external engines of a host.
  kPipes,    ///< From an agent to another: what a stage sends to the one behind it.
  kFiles,    ///< From an agent to another: what it asks for of the other's cache.
  kKv,       ///< Likewise: KV that workers ask each other for.
};

/// The first frame each way: who speaks. The first three are what its certificate says.
struct Greet {
  std::string cluster{};
  std::string role{};
  std::string name{};
  std::uint64_t incarnation = 0;  ///< Raised at each start of this name.
  Versions versions{};
  std::string build{};             ///< The version of the program, for people.
  std::string isa{};               ///< What its processor offers; decides which images it can use.
  LinkUse use = LinkUse::kOrders;  ///< Said by whoever connects.
  friend bool operator==(const Greet&, const Greet&) = default;
};

/// Sent when there was nothing else to say, so that the silence of a lost host is noticed.
struct Alive {
  friend bool operator==(const Alive&, const Alive&) = default;
};

/// The last frame: the link ends, or was never to begin.
struct Bye {
  std::string why{};
  friend bool operator==(const Bye&, const Bye&) = default;
};

using HostMessage = std::variant<Greet, Alive, Bye>;

[[nodiscard]] std::string encode(const HostMessage& message);
/// kCorrupt, with what was wrong in which field. Trusts nothing.
Result<HostMessage> decode_host_message(std::string_view bytes);

/// Whether a frame is about the link itself: a message with a number from 150 to 159, which no
/// other message has.
[[nodiscard]] bool is_host_message(std::string_view bytes);

}  // namespace heddle::rpc
