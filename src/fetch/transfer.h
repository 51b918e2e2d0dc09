#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "base/result.h"
#include "fetch/incoming.h"
#include "fetch/object.h"
#include "fetch/source.h"

namespace heddle::fetch {

struct TransferOptions {
  std::size_t connections = 8;             ///< Requests at once.
  std::uint64_t piece_bytes = 16U << 20U;  ///< Of a request, at most.
  /// Of what is noted as there, and stays after a failure.
  std::uint64_t record_bytes = 64U << 10U;
  std::uint64_t bytes_per_second = 0;  ///< Of all together; 0: as fast as it goes.
  int digest_tries = 2;                ///< How often an object may come with another digest.
  /// Called before each request, and with what has come: to wait for others that share a link.
  std::function<void(const std::stop_token&)> turn{};
  std::function<void(std::uint64_t bytes, const std::stop_token&)> took{};
};

/// What a transfer tells, of jobs by their place in its list. Called by any of its threads, one at
/// a time but for `done`.
struct TransferEvents {
  /// So many bytes of a file are there now: when it begins, as they come, and when it has to begin
  /// anew.
  std::function<void(std::size_t job, std::uint64_t bytes)> moved{};
  /// All is there and is compared with its digest.
  std::function<void(std::size_t job)> checking{};
  /// The file at Job::partial is the object, and is the caller's. What it returns ends the transfer
  /// where that is an error.
  std::function<Result<void>(std::size_t job)> done{};
};

/// Fetches what an order wants, several pieces at once, beside those who fetch for other orders.
/// Returns when all of it is there, whoever fetched it; files that are whole by then have been
/// kept. After an error or a stop what has come stays for the next time. As Source::read(),
/// check_digest() and disk_error() fail.
[[nodiscard]] Result<void> transfer(Source& source,
                                    Incoming& incoming,
                                    OrderId order,
                                    const TransferOptions& options,
                                    const std::stop_token& stop);

/// Fetches objects, one after the other, and goes on from what is there of them. An object with
/// another digest than it should have is forgotten and fetched once more, then it is kCorrupt.
/// Likewise.
[[nodiscard]] Result<void> transfer(Source& source,
                                    std::span<const Job> jobs,
                                    const TransferOptions& options,
                                    const TransferEvents& events,
                                    const std::stop_token& stop);

}  // namespace heddle::fetch
