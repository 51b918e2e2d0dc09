#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/result.h"

/// What a gateway and a host say to each other over a link for engines (rpc::LinkUse::kEngines):
/// connections to external engines, many over one link. remote/stream_fields.h describes each
/// message, docs/contracts/wire.md says who sends what when.
namespace heddle::remote {

/// A connection to an engine; its gateway numbers them upwards, one link for itself.
using StreamId = Id<struct StreamIdTag>;

/// Most bytes of a StreamBytes.
inline constexpr std::size_t kStreamPieceMost = std::size_t{64} << 10U;
/// So many bytes of a stream each side may send before the other has taken any.
inline constexpr std::size_t kStreamWindow = std::size_t{256} << 10U;

/// From a gateway: connect to the model's engine. Answered by StreamOpened or StreamEnded.
struct OpenStream {
  StreamId stream{};
  ModelId model{};
};

/// From a host: the engine has taken the connection. Where it listens, as the host has it.
struct StreamOpened {
  StreamId stream{};
  std::string host{};
  std::uint16_t port = 0;
  std::string base_path{};
};

/// The next bytes of the stream.
struct StreamBytes {
  StreamId stream{};
  std::string bytes{};
};

/// So many bytes have been passed on: as many more may be sent.
struct StreamTaken {
  StreamId stream{};
  std::uint64_t bytes = 0;
};

/// From a gateway: nobody waits for an answer over it, until it sends more.
struct StreamIdle {
  StreamId stream{};
};

/// The last of the stream: from a gateway it hangs up, from a host the engine has. With an error
/// the engine was not reached, or has broken the connection.
struct StreamEnded {
  StreamId stream{};
  std::optional<Error> error{};
};

/// Whether a text may stand in the head of a request: at most 1024 bytes, none of them a control
/// character or a space.
[[nodiscard]] bool is_head_text(std::string_view text);

using ToEngines = std::variant<OpenStream, StreamBytes, StreamTaken, StreamIdle, StreamEnded>;
using FromEngines = std::variant<StreamOpened, StreamBytes, StreamTaken, StreamEnded>;

[[nodiscard]] std::string encode(const ToEngines& message);
[[nodiscard]] std::string encode(const FromEngines& message);

/// kCorrupt, with what was wrong in which field. Trust nothing; which streams there are, and how
/// much of each may come, the reader checks.
Result<ToEngines> decode_to_engines(std::string_view bytes);
Result<FromEngines> decode_from_engines(std::string_view bytes);

}  // namespace heddle::remote
