#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"

/// What many hosts agree on: small records in a store that others run, and who leads.
namespace heddle::cluster {

/// When a record was last put. Later changes of a store have greater ones; the steps between them
/// mean nothing. 0: there is no such record.
using Revision = std::uint64_t;

inline constexpr std::size_t kKeyMax = 150;            ///< [bytes]
inline constexpr std::size_t kValueMax = 128U << 10U;  ///< Of a record [bytes].
inline constexpr std::size_t kListMax = 65'536;        ///< Records; a store has fewer.

struct Record {
  std::string key{};
  std::string value{};  ///< Any bytes.
  Revision revision = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

/// All records at one moment, and which moment that was: a watch after it misses nothing.
struct Listing {
  std::vector<Record> records{};  ///< By key.
  Revision revision = 0;
};

/// What a watch tells.
struct Change {
  enum class Kind : std::uint8_t {
    kPut,
    kRemoved,  ///< By somebody, or as it has expired; its value is empty.
    kLost,     ///< Changes may be missing from here on. The watch is over: list, and watch again.
  };
  Kind kind = Kind::kPut;
  Record record{};
  std::string why{};  ///< For people, of kLost.
};

/// A watch, which ends with this object. That may happen in its handler.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  /// Why nothing can be heard at present; empty: it can. What changes meanwhile is told later.
  [[nodiscard]] virtual std::string trouble() const = 0;
};
using WatchHandler = std::function<void(const Change&)>;

/// Records by key, which all hosts see alike: every call acts at one moment between its begin and
/// its end. Used by the thread of its executor; outlives calls, but not watches.
///
/// Keys are words with '/' between them. A word has a-z, 0-9, '-' and '.', and a letter or digit at
/// both ends and beside each dot. Records of other programs are not seen.
///
/// Besides what they say, calls fail with kInvalidArgument for a key or value that cannot be,
/// kUnavailable or kDeadlineExceeded where the store is not reached in time, and kCorrupt where
/// it answers nonsense. Messages name the store.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  virtual ~Registry() = default;

  /// The record, if there is one.
  virtual boost::asio::awaitable<Result<std::optional<Record>>> get(std::string key) = 0;

  /// All whose keys begin so; an empty prefix: all.
  virtual boost::asio::awaitable<Result<Listing>> list(std::string prefix) = 0;

  /// Puts a record where the present one has the revision `expected`, or there is none and it is 0.
  /// Returns the new revision. kFailedPrecondition where that is not so. After kUnavailable and
  /// kDeadlineExceeded it may have been put: a value that no one else puts makes that visible.
  /// @param life  The record is removed when nobody has put it again for so long; 0: never. It
  ///              may stay for a few seconds more, and while the store is away.
  virtual boost::asio::awaitable<Result<Revision>> put_if(std::string key,
                                                          Revision expected,
                                                          std::string value,
                                                          Duration life = {}) = 0;

  /// Removes the record if its revision is `expected`. Fails as put_if() does.
  virtual boost::asio::awaitable<Result<void>> remove_if(std::string key, Revision expected) = 0;

  /// Tells each change after the revision `after`, of records whose keys begin so, in order, on the
  /// executor's thread and not before this has returned. Connections that break are made again.
  [[nodiscard]] virtual std::unique_ptr<Watch> watch(std::string prefix,
                                                     Revision after,
                                                     WatchHandler handler) = 0;

  /// The store, as messages name it.
  [[nodiscard]] virtual const std::string& name() const = 0;
};

/// How the store is spoken to. Where an election is to outlast that one of several servers is
/// frozen, a third of the patience has to be well below `give_up - renewal` (election_core.h).
struct RegistryOptions {
  Duration patience = std::chrono::milliseconds(750);  ///< With a call; a third with each try.
  Duration check = std::chrono::seconds(1);            ///< Between checks of a watch.
};

/// The registry at a URL; docs/contracts/cluster.md says which there are. Nothing is asked yet.
/// kInvalidArgument where the URL is none of them, or a file that it names cannot be read.
[[nodiscard]] Result<std::shared_ptr<Registry>> open_registry(
    const boost::asio::any_io_executor& executor,
    std::string_view url,
    RegistryOptions options = {});

/// kInvalidArgument, saying what is wrong, unless a record may be called so.
[[nodiscard]] Result<void> check_key(std::string_view key);
/// Likewise for the key and value of a record.
[[nodiscard]] Result<void> check_record(std::string_view key, std::string_view value);

}  // namespace heddle::cluster
