#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/siphash.h"
#include "batches/records.h"
#include "history/database.h"

namespace heddle::batches {

/// The files and batches of all clients: what they are in an SQLite file, `book.db` of a folder,
/// and their bytes in the folder `files` beside it, under the names that the server gave them.
/// What one owner has, no other finds. Calls wait for the disk. Any thread.
class Book {
 public:
  struct Limits {
    std::uint64_t bytes = std::uint64_t{1} << 30U;  ///< Of all files together.
    std::size_t owner_files = 1024;                 ///< Files of one owner.
    std::size_t owner_batches = 8;                  ///< Batches of one owner that are not over.
    std::size_t batches = 64;                       ///< The same of all.
    std::size_t owner_past =
        1024;  ///< Batches of one owner that are over; older ones are forgotten.
  };

  /// Makes the folder where it is missing, and removes files that nobody knows of. kCorrupt for a
  /// database that is damaged, kFailedPrecondition for one of a later version, kUnavailable where
  /// it cannot be had.
  static Result<std::unique_ptr<Book>> open(const std::string& folder, Limits limits);

  /// Drawn when the book was made: what stands for owners is hashed with it.
  [[nodiscard]] const SipKey& salt() const { return salt_; }
  void set_bytes_max(std::uint64_t bytes) { bytes_max_ = bytes; }
  /// Of all files together.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_full() const { return bytes_ >= bytes_max_; }

  /// Keeps a file, whose `id` is new. kResourceExhausted where that is too much.
  Result<void> add_file(const FileRecord& file, std::string_view content);
  /// kNotFound where this owner has none of this id; so do those below.
  Result<FileRecord> file(const std::string& owner, const std::string& id);
  /// Of this owner, by age.
  Result<std::vector<FileRecord>> files(const std::string& owner);
  /// kFailedPrecondition while a batch reads it.
  Result<void> remove_file(const std::string& owner, const std::string& id);
  /// Removes what has expired, unless a batch reads it.
  Result<void> remove_expired(std::int64_t now_s);
  /// Where the bytes of a file lie, which may be one of a batch that is not over.
  [[nodiscard]] std::string path_of(const std::string& file) const;

  /// Keeps a batch that is new. kResourceExhausted where there are too many that are not over.
  Result<void> add_batch(const BatchRecord& batch);
  Result<BatchRecord> batch(const std::string& owner, const std::string& id);
  /// Of this owner, by age.
  Result<std::vector<BatchRecord>> batches(const std::string& owner);
  /// Those that are not over, of all owners, by age.
  Result<std::vector<BatchRecord>> unfinished();
  /// Takes over how a batch stands, unless it has come further.
  Result<void> keep(const BatchRecord& batch);
  /// Adds lines to the answers or the errors of a batch that is not over.
  Result<void> write(const BatchRecord& batch, bool failed, std::string_view lines);
  /// Makes files of the answers and the errors of a batch, which enters `state` and is over.
  Result<void> finish(BatchRecord& batch, State state, std::int64_t now_s);

 private:
  Book(std::string folder, history::Database database, Limits limits);

  Result<void> learn_salt();
  Result<void> tidy_up();
  Result<bool> is_known(const std::string& file);
  Result<bool> is_read(const std::string& file);
  Result<std::int64_t> count(const char* statement, const std::string& owner);
  Result<std::vector<BatchRecord>> select(const char* where,
                                          std::initializer_list<std::string_view> values);
  Result<void> keep_locked(const BatchRecord& batch);
  Result<void> insert_file(const FileRecord& file);
  Result<bool> adopt(const BatchRecord& batch, const std::string& file, std::int64_t now_s);
  Result<void> forget_past(const std::string& owner);
  void erase_bytes(const std::string& file);

  const std::string folder_;
  const Limits limits_;
  std::atomic<std::uint64_t> bytes_max_;
  std::atomic<std::uint64_t> bytes_ = 0;
  SipKey salt_{};
  std::mutex mutex_{};
  history::Database database_;  ///< Guarded by the mutex.
};

}  // namespace heddle::batches
