#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

/// What two agents say to each other over a link for files (rpc::LinkUse::kFiles): one asks for
/// models in the other's cache. Each ask has one answer. remote/cache_fields.h describes the
/// messages, docs/contracts/wire.md says who sends what when.
namespace heddle::remote {

/// An ask; whoever links numbers its own upwards.
using AskId = Id<struct CacheAskTag>;

/// Most bytes of a CachedBytes.
inline constexpr std::size_t kCachePieceMost = std::size_t{512} << 10U;
/// Most asks of a link that wait for their answers.
inline constexpr std::size_t kAsksMost = 1024;
/// Most files of a CachedFiles.
inline constexpr std::size_t kCachedFilesMost = 16384;

/// What is there of a model? Answered by CachedFiles or CacheRefusal.
struct ListCached {
  AskId ask{};
  std::string model{};  ///< As fetch::pull() takes it.
};

/// Some bytes of a file, as fetch::SharedCache::Wanted has it. Answered by CachedBytes, with all of
/// them, or by CacheRefusal.
struct ReadCached {
  AskId ask{};
  std::string model{};
  std::string file{};
  std::uint64_t file_bytes = 0;
  std::string identity{};
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;  ///< 1 to kCachePieceMost.
};

/// A file of a model, as fetch::Object has it.
struct CachedFile {
  std::string name{};
  std::uint64_t bytes = 0;
  std::string sha256{};
  std::string git_sha1{};
  std::string validator{};
};
struct CachedFiles {
  AskId ask{};
  std::string revision{};  ///< As fetch::Listing has it.
  std::vector<CachedFile> files{};
};

struct CachedBytes {
  AskId ask{};
  std::string bytes{};
};

/// kNotFound where the cache does not have it, kUnavailable where it has no time for it.
struct CacheRefusal {
  AskId ask{};
  Error error{};
};

using ToCache = std::variant<ListCached, ReadCached>;
using FromCache = std::variant<CachedFiles, CachedBytes, CacheRefusal>;

[[nodiscard]] std::string encode(const ToCache& message);
[[nodiscard]] std::string encode(const FromCache& message);

/// kCorrupt, with what was wrong in which field. Trusts nothing.
Result<ToCache> decode_to_cache(std::string_view bytes);
Result<FromCache> decode_from_cache(std::string_view bytes);

}  // namespace heddle::remote
