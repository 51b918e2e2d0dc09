#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "fetch/object.h"
#include "fetch/partial_file.h"

namespace heddle::fetch {

/// An object, and the file in which it comes: a PartialFile until all of it is there.
struct Job {
  Object object{};
  std::filesystem::path partial{};
};

/// Bytes of a job's object.
struct Part {
  std::size_t job = 0;
  Range range{};
};

/// What somebody wants of the objects that come in.
using OrderId = Id<struct OrderIdTag>;

/// What an order hears, of jobs by their place in the list. Called by any thread, one at a time.
struct OrderEvents {
  /// So many bytes of what is wanted of a file are there now.
  std::function<void(std::size_t job, std::uint64_t bytes)> moved{};
  /// All of a file is there and is compared with its digest,
  std::function<void(std::size_t job)> checking{};
  /// and was right.
  std::function<void(std::size_t job)> came{};
};

struct IncomingOptions {
  std::uint64_t piece_bytes = 16U << 20U;   ///< Of a request, at most.
  std::uint64_t record_bytes = 64U << 10U;  ///< Of what is noted as there at once.
  int digest_tries = 2;                     ///< How often an object may come with another digest.
  /// Takes the file of a job, which is the object. Any thread.
  std::function<Result<void>(std::size_t job)> keep{};
  /// The server of a job ignores ranges: it is read from its first byte on. May be empty.
  std::function<void(std::size_t job)> on_stream{};
};

/// Something to do for an order.
struct Work {
  enum class Kind : std::uint8_t {
    kPiece,   ///< Fetch this range.
    kStream,  ///< Fetch all from the first byte on, until that is enough.
    kFinish,  ///< Compare the file with its digest, and keep it.
  };
  std::size_t job = 0;
  Range range{};
  Kind kind = Kind::kPiece;
};

/// Objects on their way into files, for several who want parts of them: what is there of each, what
/// somebody fetches, and what is left. No byte is fetched by two. Any thread.
class Incoming {
 public:
  Incoming(std::vector<Job> jobs, IncomingOptions options);

  [[nodiscard]] const std::vector<Job>& jobs() const { return jobs_; }
  /// Opens the files of all jobs, which else are opened when their turn comes. As
  /// PartialFile::open().
  [[nodiscard]] Result<void> open();

  // ---- Of orders ----

  /// Somebody wants these parts, in this order. Parts are rounded to whole records. Room for those
  /// of files that are open is taken of the disk now, of others when they are opened.
  [[nodiscard]] OrderId begin(const std::vector<Part>& parts, OrderEvents events);
  /// Nobody wants them any more, fetches for them or awaits them.
  void end(OrderId order);
  /// Whether anybody else still waits for what it wants.
  [[nodiscard]] bool others_wait(OrderId order) const;
  /// Why an order has failed; nothing where it has not.
  [[nodiscard]] std::optional<Error> failure(OrderId order) const;
  /// It fails, unless it has already.
  void fail(OrderId order, const Error& error);
  /// Waits until these bytes may be read. What the order failed with; kCancelled after a stop.
  [[nodiscard]] Result<void> await(OrderId order, const Part& part, const std::stop_token& stop);

  // ---- Of those who fetch ----

  /// Waits until there is something to do for an order, and says of what kind it is. Nothing where
  /// nothing is left, or it has failed, or after a stop.
  [[nodiscard]] std::optional<Work::Kind> await_work(OrderId order, const std::stop_token& stop);
  /// The next to do, which is the caller's until done(); nothing where others do it.
  [[nodiscard]] std::optional<Work> claim(OrderId order);
  /// Puts bytes that are known to their place, before there is an order.
  [[nodiscard]] Result<void> seed(std::size_t job, std::span<const std::byte> front);
  /// Puts bytes of a piece that follow each other to their place. True where that is enough.
  [[nodiscard]] Result<bool> put(const Work& work,
                                 std::uint64_t offset,
                                 std::span<const std::byte> bytes);
  /// Compares a file with its digest, and keeps it.
  [[nodiscard]] Result<void> finish(const Work& work, const std::stop_token& stop);
  /// What has become of it. What failed is left to others, and the order fails, unless another try
  /// may help.
  void done(OrderId order, const Work& work, const Result<void>& result);

  // ---- Of all ----

  /// How many bytes parts have of each job, in whole records.
  [[nodiscard]] std::map<std::size_t, std::uint64_t> bytes_of(const std::vector<Part>& parts) const;
  /// Bytes that are not there, of files that are open.
  [[nodiscard]] std::uint64_t missing_bytes() const;
  /// What is not there, likewise.
  [[nodiscard]] std::vector<Part> missing() const;
  /// Bytes that parts will take of the disk beyond what the files have of it, likewise.
  [[nodiscard]] std::uint64_t needed_bytes(const std::vector<Part>& parts) const;
  /// Whether all files have come and were kept.
  [[nodiscard]] bool whole() const;
  /// Whether some object was another than it should have been.
  [[nodiscard]] bool spoilt() const;

 private:
  enum class Record : std::uint8_t { kMissing, kClaimed, kThere };
  struct JobState {
    std::optional<PartialFile> file{};
    std::vector<Record> records{};
    std::uint64_t missing_bytes = 0;
    std::size_t claims = 0;  ///< Who works on it.
    int digests_wrong = 0;
    bool one_stream = false;  ///< Its server ignores ranges.
    bool over = false;
  };
  struct Order {
    std::vector<Part> parts{};                            ///< Of whole records; neighbours are one.
    std::map<std::size_t, std::vector<Range>> extents{};  ///< The same, by job and place.
    std::map<std::size_t, std::uint64_t> there{};         ///< Bytes of it, by job.
    OrderEvents events{};
    std::optional<Error> failed{};
    std::size_t part = 0;          ///< All before is there, or somebody fetches it,
    std::uint64_t at = 0;          ///< and in this part what is before this place;
    std::uint64_t generation = 0;  ///< unless something was given back since.
  };

  [[nodiscard]] Range rounded(const Part& part) const;
  [[nodiscard]] std::vector<Part> rounded(const std::vector<Part>& parts) const;
  [[nodiscard]] std::map<std::size_t, std::vector<Range>> extents_of(
      const std::vector<Part>& parts) const;
  Result<void> open_job(std::size_t job);
  Result<void> reserve(const Order& order, std::size_t job);
  void count(Order& order, std::size_t job) const;
  [[nodiscard]] bool has(const JobState& state, Range range) const;
  [[nodiscard]] std::uint64_t lacking_bytes(const JobState& state, Range range) const;
  [[nodiscard]] bool over(const Order& order) const;
  [[nodiscard]] bool may_finish(std::size_t job) const;
  std::optional<Work> find(Order& order);
  std::optional<Work> find_in(Order& order, const Part& part);
  Result<void> mark(std::size_t job, Range range);
  void set(std::size_t job, Range range, Record from, Record to);
  void spoil(std::size_t job, const Error& error);
  [[nodiscard]] std::uint64_t enough(std::size_t job) const;

  const std::vector<Job> jobs_;
  const IncomingOptions options_;
  const std::uint64_t record_bytes_;

  mutable std::mutex mutex_{};             // Guards all below.
  std::condition_variable_any came_{};     ///< More may be read.
  std::condition_variable_any changed_{};  ///< There may be more to do, or less.
  std::vector<JobState> states_;
  std::map<OrderId, Order> orders_{};
  std::uint64_t begun_ = 0;
  std::uint64_t generation_ = 0;  ///< How often something was given back.
  bool spoilt_ = false;
};

}  // namespace heddle::fetch
