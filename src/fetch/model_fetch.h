#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fetch/model_cache.h"
#include "fetch/object.h"
#include "fetch/peer.h"
#include "fetch/source.h"
#include "fetch/source_name.h"
#include "fetch/transfer.h"
#include "fetch/wanted.h"
#include "store/model_source.h"

namespace heddle::fetch {

struct PullOptions {
  store::ModelPlaces places{};
  store::Environment environment{};  ///< Endpoints and credentials are read from it.
  SourceOptions source{};
  TransferOptions transfer{};
  std::uint64_t budget = 0;  ///< Of heddle's own cache, in bytes; 0: none.
  /// Hosts that may have the model in their caches, the best first.
  std::vector<std::shared_ptr<Peer>> peers{};
};

/// Hears how a model is fetched. Called by the threads of that, one at a time.
class PullWatch {
 public:
  virtual ~PullWatch() = default;

  /// Another process fetches this model; its end is awaited.
  virtual void waits() = 0;
  /// These were removed, to make room.
  virtual void removed(const std::vector<std::string>& models) = 0;
  /// These are to be fetched, and those are not read by heddle. Where parts of a model are fetched,
  /// a file has as many bytes as are wanted of it.
  virtual void begins(std::span<const Job> files, std::span<const Object> left_out) = 0;
  /// So many bytes of a file, by its place in that list, are there.
  virtual void moved(std::size_t file, std::uint64_t bytes) = 0;
  /// A file is there, and is compared with its digest.
  virtual void checking(std::size_t file) = 0;
  virtual void came(std::size_t file) = 0;
  /// A request failed and is made again after `wait`.
  virtual void retries(const std::string& why, Duration wait) = 0;
  /// A server ignores ranges: files are read from their first byte on.
  virtual void streams() {}
  /// A host that may have the model does not give what it was asked for.
  virtual void peer_failed(const std::string& /*why*/) {}
};

/// Bytes that jobs will take of the disk beyond what they have of it.
[[nodiscard]] std::uint64_t needed_bytes(std::span<const Job> jobs);

/// One model on its way into its cache, step by step: open(), missing(), fetch(), publish(). It has
/// the model's lock from open() on. One thread; errors as pull() has them.
class ModelFetch {
 public:
  /// Options and watch outlive it.
  ModelFetch(SourceName name, const PullOptions& options, PullWatch& watch, std::stop_token stop)
      : name_(std::move(name)), options_(options), watch_(watch), stop_(std::move(stop)) {}

  /// Waits for the model's lock, asks the source what there is, and chooses.
  [[nodiscard]] Result<void> open();

  // ---- After open() ----

  [[nodiscard]] const std::vector<Object>& wanted() const { return choice_.wanted; }
  [[nodiscard]] const std::string& revision() const { return revision_; }
  [[nodiscard]] Source& source() { return *source_; }
  /// What of the wanted files is not there, and where each comes. Once.
  [[nodiscard]] Result<std::vector<Job>> missing();

  // ---- After missing() ----

  /// Makes room for so many bytes in the cache, or says that there is none. Any thread.
  [[nodiscard]] Result<void> make_place(std::uint64_t needed_bytes);
  /// Where a file is that was there, or has come.
  [[nodiscard]] std::filesystem::path place_of(const Object& object) const {
    return place_->place_of(object);
  }
  /// Fetches some of what is missing.
  [[nodiscard]] Result<void> fetch(std::span<const Job> jobs, const TransferOptions& transfer);
  /// Takes a job's file that has come otherwise, and is right. Any thread.
  [[nodiscard]] Result<void> keep(const Job& job) { return place_->keep(job); }
  /// The model appears: all files are there. Returns its directory, or its GGUF file.
  [[nodiscard]] Result<std::filesystem::path> publish();
  /// Whether it is in GGUF files.
  [[nodiscard]] bool is_gguf() const { return !name_.tag.empty(); }
  void tell_begin(std::span<const Job> jobs) { watch_.begins(jobs, choice_.left_out); }

 private:
  [[nodiscard]] Result<void> open_source();
  [[nodiscard]] Result<void> list();
  [[nodiscard]] Result<std::string> read_small(const Object& object);

  SourceName name_;
  const PullOptions& options_;
  PullWatch& watch_;
  std::stop_token stop_;
  std::mutex watch_mutex_{};
  std::unique_ptr<ModelPlace> place_{};
  std::unique_ptr<Source> source_{};
  Choice choice_{};
  std::string revision_{};
};

}  // namespace heddle::fetch
