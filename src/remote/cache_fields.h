#pragma once

#include "core/message_fields.h"
#include "remote/cache_messages.h"

/// As core/message_fields.h, for models in another host's cache.
namespace heddle::remote {

inline void fields(Fields& v, ListCached& x) {
  v.message(205, "ListCached");
  v(1, "ask", x.ask);
  v(2, "model", x.model);
}

inline void fields(Fields& v, ReadCached& x) {
  v.message(206, "ReadCached");
  v(1, "ask", x.ask);
  v(2, "model", x.model);
  v(3, "file", x.file);
  v(4, "file_bytes", x.file_bytes);
  v(5, "identity", x.identity);
  v(6, "begin", x.begin);
  v(7, "bytes", x.bytes);
  v.require(x, "1 byte to 512 KiB that lie in the file", [](const ReadCached& read) {
    return read.bytes > 0 && read.bytes <= kCachePieceMost && read.begin <= read.file_bytes &&
           read.bytes <= read.file_bytes - read.begin;
  });
}

inline void fields(Fields& v, CachedFile& x) {
  v.type("CachedFile");
  v(1, "name", x.name);
  v(2, "bytes", x.bytes);
  v(3, "sha256", x.sha256);
  v(4, "git_sha1", x.git_sha1);
  v(5, "validator", x.validator);
}

inline void fields(Fields& v, CachedFiles& x) {
  v.message(207, "CachedFiles");
  v(1, "ask", x.ask);
  v(2, "revision", x.revision);
  v(3, "files", x.files);
  v.require(x, "at most 16384 files", [](const CachedFiles& cached) {
    return cached.files.size() <= kCachedFilesMost;
  });
}

inline void fields(Fields& v, CachedBytes& x) {
  v.message(208, "CachedBytes");
  v(1, "ask", x.ask);
  v(2, "bytes", x.bytes);
  v.require(x, "at most 512 KiB", [](const CachedBytes& cached) {
    return cached.bytes.size() <= kCachePieceMost;
  });
}

inline void fields(Fields& v, CacheRefusal& x) {
  v.message(209, "CacheRefusal");
  v(1, "ask", x.ask);
  v(2, "error", x.error);
}

}  // namespace heddle::remote
