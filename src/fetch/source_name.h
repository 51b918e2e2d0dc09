#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::fetch {

enum class SourceKind : std::uint8_t {
  kFile,  ///< A folder of this machine: file:///dir.
  kHttp,  ///< A folder of a server: http(s)://host/dir/.
  kS3,    ///< s3://bucket/prefix.
  kHub,   ///< Hugging Face's hub, or what speaks like it: org/name, hf://org/name@revision.
};

/// The name of a model, taken apart.
struct SourceName {
  SourceKind kind = SourceKind::kHub;
  std::string text{};      ///< As it was given.
  std::string path{};      ///< kFile: the folder; kHttp: the URL, with "/" at its end;
                           ///< kS3: the prefix, empty or with "/" at its end.
  std::string bucket{};    ///< kS3.
  std::string repo{};      ///< kHub: "org/name" or "name".
  std::string revision{};  ///< kHub: a branch, tag or commit.
};

/// Reads such a name. kInvalidArgument, saying what would be right, for anything else; for a URL
/// with credentials, a query or a fragment too.
[[nodiscard]] Result<SourceName> parse_source_name(std::string_view text);

}  // namespace heddle::fetch
