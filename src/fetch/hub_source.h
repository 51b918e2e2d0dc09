#pragma once

#include <string>

#include "fetch/web_source.h"

namespace heddle::fetch {

/// A repository of Hugging Face's hub, or of what speaks like it. A branch is listed once; from
/// then on its commit is read.
class HubSource final : public WebSource {
 public:
  /// As Hugging Face's tools do, reads HF_ENDPOINT, and as token HF_TOKEN, else the file
  /// HF_TOKEN_PATH, else `token` in HF_HOME.
  HubSource(const SourceName& name,
            const store::Environment& environment,
            const SourceOptions& options);

  [[nodiscard]] Result<Listing> list(const std::stop_token& stop) override;

 private:
  [[nodiscard]] GetRequest request_for(const std::string& url) const override;
  [[nodiscard]] Error explain(const GetReply& reply) const override;

  SourceName name_;
  std::string endpoint_;
  std::string token_;
};

}  // namespace heddle::fetch
