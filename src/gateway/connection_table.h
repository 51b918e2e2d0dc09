#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include <boost/intrusive/list.hpp>

namespace heddle::gateway {

/// The connections that are open, by what they do, and which of them goes when there is no room for
/// another: one that is silent, of the address with the most silent ones. Each call takes the same
/// time however many there are. Loop thread.
class ConnectionTable {
  struct ByAddress;
  using Hook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  template <class T, Hook T::* hook>
  using List = boost::intrusive::list<T,
                                      boost::intrusive::member_hook<T, Hook, hook>,
                                      boost::intrusive::constant_time_size<false>>;

 public:
  /// In the order in which they go; the last ones stay.
  enum class State : std::uint8_t {
    kFresh,    ///< Nothing has come yet.
    kHead,     ///< A head has begun, or a client that was turned away is still there.
    kBetween,  ///< Between requests.
    kBusy,     ///< A request is read or answered.
  };

  /// An open connection.
  class Entry {
   public:
    Entry() = default;
    virtual ~Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    /// Has it end at once; whoever runs it takes it out of the table later.
    virtual void close() = 0;
    /// Has it end as soon as its answer allows.
    virtual void wind_down() = 0;

   private:
    friend class ConnectionTable;
    Hook in_all_{};
    Hook in_state_{};
    ByAddress* address_ = nullptr;
    std::string client_{};  ///< Whose request is counted.
    State state_ = State::kFresh;
  };

  ConnectionTable() = default;
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  /// `address`: as peer_group() has it.
  void enter(Entry& entry, const std::string& address);
  void leave(Entry& entry);
  /// It does something else; within a state those go first that came to it first.
  void move(Entry& entry, State state);
  /// A request of `client` begins, unless it has `most` already; whether it does.
  bool begin(Entry& entry, const std::string& client, std::size_t most);

  /// Closes the one that goes first and forgets it; false where none is silent.
  bool push_out();

  /// All that have entered and not left, but for those that were pushed out.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t busy() const { return size_ - silent_; }
  [[nodiscard]] bool has_silent() const { return silent_ > 0; }

  /// `act` may take the one it is given out of the table.
  template <class Act>
  void for_each(Act act) {
    for (auto at = all_.begin(); at != all_.end();) {
      Entry& entry = *at;
      ++at;
      act(entry);
    }
  }

 private:
  static constexpr std::size_t kSilentStates = 3;

  using Entries = List<Entry, &Entry::in_state_>;
  struct ByAddress {
    std::string name{};
    std::array<Entries, kSilentStates> silent{};  ///< By state; the longest silent in front.
    std::size_t silent_count = 0;
    std::size_t count = 0;
    Hook in_rank{};
  };
  using Addresses = List<ByAddress, &ByAddress::in_rank>;

  void begin_silence(Entry& entry, State state);
  void end_silence(Entry& entry);
  void rank(ByAddress& address);
  void end_request(Entry& entry);

  List<Entry, &Entry::in_all_> all_{};
  std::unordered_map<std::string, ByAddress> addresses_{};
  std::deque<Addresses> ranks_{};  ///< By how many silent ones they have; from one on.
  std::unordered_map<std::string, std::size_t> requests_{};  ///< By client; none is zero.
  std::size_t size_ = 0;
  std::size_t silent_ = 0;
  std::size_t most_ = 0;  ///< No address has more silent ones.
};

/// Who counts as one address: of IPv6 the first 64 bits, as a host has all that follow.
[[nodiscard]] std::string peer_group(const std::string& peer);

}  // namespace heddle::gateway
