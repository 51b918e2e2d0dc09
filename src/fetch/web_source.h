#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "fetch/http_get.h"
#include "fetch/source.h"

namespace heddle::fetch {

/// What sources over HTTP have in common.
class WebSource : public Source {
 public:
  [[nodiscard]] Result<void> read(const Object& object,
                                  Range range,
                                  const Sink& sink,
                                  const std::stop_token& stop) final;

 protected:
  explicit WebSource(const SourceOptions& options);

  /// A request for a URL of this source, with its credentials.
  [[nodiscard]] virtual GetRequest request_for(const std::string& url) const = 0;
  /// What to say of an answer that is no success.
  [[nodiscard]] virtual Error explain(const GetReply& reply) const = 0;

  /// A small answer. Failures that may pass are tried again; others are as explain() has them.
  [[nodiscard]] Result<HttpGet::Text> text(const std::string& url,
                                           std::uint64_t bytes_max,
                                           const std::stop_token& stop);

  [[nodiscard]] HttpGet& http() { return http_; }
  /// How often a source is asked what there is: nobody waits long for one that is away.
  [[nodiscard]] const RetryOptions& listing_retry() const { return listing_retry_; }

 private:
  HttpGet http_;
  RetryOptions retry_;
  RetryOptions listing_retry_;
};

}  // namespace heddle::fetch
