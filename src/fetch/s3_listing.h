#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fetch/object.h"

/// What S3 says, as XML.
namespace heddle::fetch {

/// A page of ListObjectsV2.
struct S3Page {
  std::vector<Object> objects{};  ///< Without their URLs.
  std::string next{};             ///< The continuation token of the next page; empty at the end.
};

/// Reads a page. Names are those below `prefix`; keys that end with "/" are left out, they stand
/// for folders. kCorrupt, naming `where`, where it is no such page, or a key leads out of the
/// folder.
[[nodiscard]] Result<S3Page> parse_s3_page(std::string_view xml,
                                           std::string_view prefix,
                                           std::string_view where);

/// The code of an S3 error: "NoSuchBucket"; empty where it is none.
[[nodiscard]] std::string s3_error_code(std::string_view xml);

}  // namespace heddle::fetch
