#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/model_source.h"

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
  std::string tag{};       ///< kHub: which of its GGUF files, as "Q4_K_M"; empty: none of them.
};

/// As in metric labels: "file", "http", "s3", "hub".
[[nodiscard]] std::string_view name(SourceKind kind);

/// Reads such a name. kInvalidArgument, saying what would be right, for anything else; for a URL
/// with credentials, a query or a fragment too.
[[nodiscard]] Result<SourceName> parse_source_name(std::string_view text);

/// The source from which a server fetches what a model's `path` names, where it is not in a cache:
/// a URL over a network, or a name of the hub with an organisation. Nothing for folders of this
/// machine, and for names of the hub where HF_HUB_OFFLINE says that it is not to be asked.
[[nodiscard]] std::optional<SourceName> remote_source(std::string_view path,
                                                      const store::Environment& environment);

}  // namespace heddle::fetch
