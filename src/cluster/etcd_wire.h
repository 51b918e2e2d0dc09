#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/registry.h"

/// etcd's API, version 3, as its gateway has it in JSON: 64-bit numbers as strings, bytes in
/// base64, and fields left out that are 0 or empty. Answers are believed nothing: what does not fit
/// is kCorrupt, and where an answer says that it is an error, that is kUnavailable.
namespace heddle::cluster::etcd {

/// Of an answer.
struct Header {
  std::string cluster{};  ///< The id of the etcd cluster.
  Revision revision = 0;
};

/// Of /v3/kv/range.
struct Range {
  Header header{};
  std::vector<Record> records{};  ///< Keys as etcd has them.
  bool more = false;              ///< There are others beyond the limit.
};

/// Of /v3/kv/txn.
struct Txn {
  Header header{};
  bool succeeded = false;
  std::optional<Record> present{};  ///< What its range on failure found.
};

/// Of /v3/lease/grant.
struct Lease {
  std::string id{};
  std::int64_t seconds = 0;  ///< What is granted; 0: there is no such lease.
};

/// One line of /v3/watch.
struct WatchLine {
  Header header{};
  std::vector<Change> changes{};  ///< Keys as etcd has them.
  bool created = false;
  bool fragment = false;  ///< The next line goes on with this one.
  bool canceled = false;
  Revision compacted = 0;  ///< Changes before it are gone; 0: not said.
  std::string reason{};
};

[[nodiscard]] Result<Range> parse_range(std::string_view body);
[[nodiscard]] Result<Txn> parse_txn(std::string_view body);
[[nodiscard]] Result<Lease> parse_lease(std::string_view body);
/// Of /v3/lease/keepalive, which answers with a stream of one line.
[[nodiscard]] Result<Lease> parse_keep_alive(std::string_view body);
[[nodiscard]] Result<WatchLine> parse_watch_line(std::string_view line);

/// Bodies of requests. A range goes from `first` up to `end`, which is no part of it; an empty
/// `end` means just `first`.
struct RangeQuery {
  std::string_view first{};
  std::string_view end{};
  std::int64_t limit = 0;  ///< 0: none.
  Revision at = 0;         ///< As it was then; 0: is now.
  bool newest_first = false;
};
[[nodiscard]] std::string range_body(const RangeQuery& query);
/// @param lease  Empty: none.
[[nodiscard]] std::string put_body(std::string_view key,
                                   Revision expected,
                                   std::string_view value,
                                   std::string_view lease);
[[nodiscard]] std::string remove_body(std::string_view key, Revision expected);
[[nodiscard]] std::string grant_body(std::int64_t seconds);
[[nodiscard]] std::string keep_alive_body(std::string_view lease);
[[nodiscard]] std::string watch_body(std::string_view first, std::string_view end, Revision start);

/// The end of the range of keys that begin with `prefix`, which is not empty and does not end in
/// byte 255.
[[nodiscard]] std::string end_of(std::string_view prefix);

}  // namespace heddle::cluster::etcd
