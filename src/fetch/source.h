#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>

#include "base/result.h"
#include "fetch/http_get.h"
#include "fetch/object.h"
#include "fetch/ranged_read.h"
#include "fetch/source_name.h"
#include "store/model_source.h"

namespace heddle::fetch {

/// Where a model's files come from. Its calls block; any thread may make them, at the same time.
class Source {
 public:
  virtual ~Source() = default;

  /// What there is. Names lie below the model's folder. kNotFound where there is no such model or
  /// revision; kFailedPrecondition where it may not be read; kUnavailable where the source does not
  /// answer; kCorrupt where what it says makes no sense or leads out of the folder.
  [[nodiscard]] virtual Result<Listing> list(const std::stop_token& stop) = 0;

  /// Passes a range of an object to `sink`, in order, each byte once. Failures that may pass are
  /// tried again. kFailedPrecondition, with kIgnoresRanges as its message, where the server has
  /// only the whole: ask for that. kCorrupt where the object is another than the one listed;
  /// kCancelled after a stop; what `sink` returns; else as list().
  [[nodiscard]] virtual Result<void> read(const Object& object,
                                          Range range,
                                          const Sink& sink,
                                          const std::stop_token& stop) = 0;

  /// All of an object has come, and is another content than it should be.
  virtual void spoilt(const Object& /*object*/) {}
};

/// How sources are asked.
struct SourceOptions {
  HttpOptions http{};
  RetryOptions retry{};
};

/// The source that a name stands for. What it needs beside the name (endpoints, credentials) is
/// read from `environment` as the tools of each kind read it. kInvalidArgument where that is wrong.
[[nodiscard]] Result<std::unique_ptr<Source>> open_source(const SourceName& name,
                                                          const store::Environment& environment,
                                                          const SourceOptions& options);

/// Fills `target` with what an object has from `offset` on.
[[nodiscard]] Result<void> fill(Source& source,
                                const Object& object,
                                std::uint64_t offset,
                                std::span<std::byte> target,
                                const std::stop_token& stop);

}  // namespace heddle::fetch
