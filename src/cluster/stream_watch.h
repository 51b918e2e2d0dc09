#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/registry.h"
#include "cluster/servers.h"
#include "http/client.h"

namespace heddle::cluster {

/// What one line of a stream says, or an answer in its place.
struct Heard {
  std::vector<Change> changes{};
  Revision position = 0;  ///< The stream goes on after it; 0: where it was.
  std::string lost{};     ///< Why changes may be missing; empty: none are.
  std::string broken{};   ///< Why the stream is to be opened again; empty: it goes on.
};

/// How a store is at present.
struct StoreState {
  std::string store{};  ///< Which one it is; another text: another store.
  Revision revision = 0;
  Revision newest = 0;  ///< Of the records under the prefix; 0: not said.
};

/// What is particular to a store whose watches are streams of lines.
class WatchSource {
 public:
  virtual ~WatchSource() = default;
  /// Opens the stream.
  [[nodiscard]] virtual http::Request stream(Revision after) const = 0;
  /// Understands a line.
  virtual Heard hear(std::string_view line) = 0;
  /// Understands an answer that is no stream.
  [[nodiscard]] virtual Heard refused(const http::Reply& reply) const = 0;
  /// Asks for the state, which has to be that of now.
  [[nodiscard]] virtual http::Request check() const = 0;
  [[nodiscard]] virtual Result<StoreState> checked(const http::Reply& reply) const = 0;
};

/// A watch over such streams. It checks the store before it opens one, and again and again while
/// that is open, as a stream from a server that is cut off from the others says nothing and does
/// not end (etcd issue 8980). A store that is another one, or whose revision has gone back, as
/// after it was restored from a snapshot, has lost changes.
/// @param store  Which one `after` is of; empty: not known.
[[nodiscard]] std::unique_ptr<Watch> watch_stream(std::shared_ptr<Servers> servers,
                                                  std::unique_ptr<WatchSource> source,
                                                  std::string store,
                                                  Revision after,
                                                  WatchHandler handler);

}  // namespace heddle::cluster
