#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "twin/agenda.h"
#include "twin/cluster_messages.h"
#include "twin/faults.h"
#include "twin/setup.h"

namespace heddle::twin {

/// The ends of a connection: who made it, and who took it.
enum class Side : std::uint8_t { kCaller, kCallee };
[[nodiscard]] constexpr Side other(Side side) {
  return side == Side::kCaller ? Side::kCallee : Side::kCaller;
}

class Path;

struct WireHandlers {
  std::function<void(const Message&)> on_message{};
  /// The connection has ended, and not by close() at this end.
  std::function<void()> on_closed{};
};

/// A connection between two processes, as net::HostLink is one: what is sent comes in order, or is
/// lost with the connection. Each end is closed by itself, and hears nothing after that. One
/// thread.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  /// `path` outlives it.
  explicit Wire(Path& path) : path_(path) {}

  void start(Side end, WireHandlers handlers) { end_of(end).handlers = std::move(handlers); }
  [[nodiscard]] bool open(Side end) const { return ends_.at(index(end)).open; }
  /// Nothing goes from an end that is closed.
  void send(Side from, Message message);
  /// This end is no more. If it `tells`, the other hears so after all that was sent before.
  void close(Side end, bool tells = true);

 private:
  friend class Path;

  struct End {
    WireHandlers handlers{};
    bool open = true;
    bool forgets = false;  ///< What is under way from it is lost.
    Instant last{};        ///< When what was sent last from here arrives.
    /// From here, in order; none: that the end is closed.
    std::deque<std::optional<Message>> under_way{};
    std::size_t due = 0;  ///< Of them, those that would have come but for a cut.
  };
  static std::size_t index(Side side) { return static_cast<std::size_t>(side); }
  [[nodiscard]] End& end_of(Side side) { return ends_.at(index(side)); }

  void put(Side from, std::optional<Message> message);
  void arrive_later(Side from);
  void arrive(Side from);
  void release(Side from);
  /// The end takes the connection for lost.
  void notice(Side end, bool tells);

  Path& path_;
  std::array<End, 2> ends_{};
};

/// The way between two processes, over which they link again and again. One thread.
class Path {
 public:
  /// They outlive it.
  Path(const ClusterTimes& times, Agenda& agenda, Faults& faults)
      : times_(times), agenda_(agenda), faults_(faults) {}

  /// Nothing from that side arrives for so long. Whoever waits for it notices at a time of its own,
  /// after a silence at most, and ends the connection. Otherwise what was sent comes late.
  void cut(Side from, Duration length);
  /// One end takes its connection for lost, of which the other hears nothing.
  void reset(Side end);
  /// The process at this end is no more. Its system says so to the other, or it is silent.
  void fall(Side end, bool silent);

  /// Nothing is cut.
  [[nodiscard]] bool clear() const;
  [[nodiscard]] std::shared_ptr<Wire> connect();

 private:
  friend class Wire;

  [[nodiscard]] bool is_cut(Side from) const { return cuts_.at(Wire::index(from)) > 0; }
  [[nodiscard]] std::vector<std::shared_ptr<Wire>> wires();
  void notice_later(const std::shared_ptr<Wire>& wire, Side end);

  const ClusterTimes& times_;
  Agenda& agenda_;
  Faults& faults_;
  std::array<int, 2> cuts_{};              ///< That hold, by whose words are lost.
  std::array<std::uint64_t, 2> cut_no_{};  ///< Since the last of which nothing has come.
  std::vector<std::weak_ptr<Wire>> wires_{};
};

}  // namespace heddle::twin
