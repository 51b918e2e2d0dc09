#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fetch/s3_signature.h"
#include "fetch/web_source.h"

namespace heddle::fetch {

/// Objects of a bucket, of AWS or of what speaks like S3.
class S3Source final : public WebSource {
 public:
  /// As AWS's tools do, reads AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL; AWS_REGION, else
  /// AWS_DEFAULT_REGION, else us-east-1; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
  /// AWS_SESSION_TOKEN, without which requests are anonymous. With an endpoint, the bucket stands
  /// in the path. kInvalidArgument where half of the credentials is missing, or the endpoint is no
  /// URL.
  [[nodiscard]] static Result<std::unique_ptr<Source>> open(const SourceName& name,
                                                            const store::Environment& environment,
                                                            const SourceOptions& options);

  [[nodiscard]] Result<Listing> list(const std::stop_token& stop) override;

 private:
  S3Source(const SourceName& name, const SourceOptions& options)
      : WebSource(options), name_(name) {}
  [[nodiscard]] GetRequest request_for(const std::string& url) const override;
  [[nodiscard]] Error explain(const GetReply& reply) const override;

  SourceName name_;
  std::string origin_{};       ///< "https://host:port", without a slash at its end.
  std::string authority_{};    ///< The header Host.
  std::string bucket_path_{};  ///< "" or "/bucket", encoded, after the origin.
  std::string region_{};
  S3Credentials credentials_{};
};

}  // namespace heddle::fetch
