#include "fetch/source.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "fetch/file_source.h"
#include "fetch/http_source.h"
#include "fetch/hub_source.h"
#include "fetch/s3_source.h"

namespace heddle::fetch {

Result<std::unique_ptr<Source>> open_source(const SourceName& name,
                                            const store::Environment& environment,
                                            const SourceOptions& options) {
  SourceOptions all = options;
  if (all.http.authorities.empty()) {
    all.http.authorities = environment("SSL_CERT_FILE").value_or("");
  }
  switch (name.kind) {
    case SourceKind::kFile:
      return std::unique_ptr<Source>(std::make_unique<FileSource>(name));
    case SourceKind::kHttp:
      return std::unique_ptr<Source>(std::make_unique<HttpSource>(name, all));
    case SourceKind::kS3:
      return S3Source::open(name, environment, all);
    case SourceKind::kHub:
      break;
  }
  return std::unique_ptr<Source>(std::make_unique<HubSource>(name, environment, all));
}

Result<void> fill(Source& source,
                  const Object& object,
                  std::uint64_t offset,
                  std::span<std::byte> target,
                  const std::stop_token& stop) {
  return source.read(
      object,
      {.begin = offset, .end = offset + target.size()},
      [&](std::uint64_t at, std::span<const std::byte> part) -> Result<void> {
        std::ranges::copy(part, target.subspan(at - offset).begin());
        return {};
      },
      stop);
}

}  // namespace heddle::fetch
