#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fetch/web_source.h"

namespace heddle::fetch {

/// A folder of a web server. It has no listing, so the files that heddle reads are asked for by
/// name, with a request for one byte each.
class HttpSource final : public WebSource {
 public:
  HttpSource(const SourceName& name, const SourceOptions& options);

  [[nodiscard]] Result<Listing> list(const std::stop_token& stop) override;

 private:
  [[nodiscard]] GetRequest request_for(const std::string& url) const override;
  [[nodiscard]] Error explain(const GetReply& reply) const override;
  /// The file of this name; nothing where there is none. Where one `must` be there, that and a
  /// server which does not let it be read are errors.
  [[nodiscard]] Result<std::optional<Object>> look_for(std::string_view name,
                                                       bool must,
                                                       const std::stop_token& stop);
  [[nodiscard]] Result<void> list_weights(Listing& listing, const std::stop_token& stop);

  SourceName name_;
};

}  // namespace heddle::fetch
