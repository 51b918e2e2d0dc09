#pragma once

#include <string>

#include "base/result.h"
#include "fetch/http_get.h"
#include "fetch/source_name.h"

namespace heddle::fetch {

/// Who was asked for what.
struct Asked {
  SourceKind kind = SourceKind::kHttp;
  std::string model{};            ///< As it was named.
  bool with_credentials = false;  ///< The request had some.
};

/// What to say of an answer that is no success, and what would be right: kNotFound where there is
/// no such thing, kUnavailable where it may pass, else kFailedPrecondition.
[[nodiscard]] Error fault_of(const GetReply& reply, const Asked& asked);

}  // namespace heddle::fetch
