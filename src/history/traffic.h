#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace heddle::history {

/// What was asked of one model in one window.
struct Traffic {
  std::int64_t arrivals = 0;  ///< Requests that came, whatever became of them.
  std::int64_t finished = 0;  ///< Requests that ended with an answer; the rest is of these.
  double prompt_tokens = 0;   ///< Of all.
  double prompt_squares = 0;  ///< The sum of their squares, which tells how unequal they are.
  double answer_tokens = 0;
  double answer_squares = 0;

  void arrived() { ++arrivals; }
  void ended(std::int64_t prompt, std::int64_t answer);
  void add(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// By the models' names.
using ModelTraffic = std::map<std::string, Traffic>;

/// What was asked in past windows of one length.
struct TrafficHistory {
  Duration window{};                               ///< Their length.
  std::map<std::int64_t, ModelTraffic> windows{};  ///< By number (policy::Calendar); only those
                                                   ///< in which requests came or ended.
};

/// Reads what HistoryStore::count() has kept, while a server may be writing it. Of windows of
/// several lengths those of the length that was used last count. Of several files, as managers of
/// one cluster have them, what they counted is added up.
/// @param places  Files, or directories with a `history.db`; at least one.
///
/// kNotFound: there is none; kCorrupt: it is no database, or damaged; kFailedPrecondition: it is of
/// another version, has no requests, or its windows are of another length than the first one's. The
/// messages name the file.
Result<TrafficHistory> read_traffic(const std::vector<std::string>& places);

}  // namespace heddle::history
