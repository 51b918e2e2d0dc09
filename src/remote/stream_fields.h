#pragma once

#include "core/message_fields.h"
#include "remote/stream_messages.h"

/// As core/message_fields.h, for connections to external engines of a host.
namespace heddle::remote {

inline void fields(Fields& v, OpenStream& x) {
  v.message(176, "OpenStream");
  v(1, "stream", x.stream);
  v(2, "model", x.model);
}

inline void fields(Fields& v, StreamOpened& x) {
  v.message(177, "StreamOpened");
  v(1, "stream", x.stream);
  v(2, "host", x.host);
  v(3, "port", x.port);
  v(4, "base_path", x.base_path);
  v.require(x, "texts that fit the head of a request", [](const StreamOpened& opened) {
    return is_head_text(opened.host) && is_head_text(opened.base_path);
  });
}

inline void fields(Fields& v, StreamBytes& x) {
  v.message(178, "StreamBytes");
  v(1, "stream", x.stream);
  v(2, "bytes", x.bytes);
  v.require(x, "1 byte to 64 KiB", [](const StreamBytes& piece) {
    return !piece.bytes.empty() && piece.bytes.size() <= kStreamPieceMost;
  });
}

inline void fields(Fields& v, StreamTaken& x) {
  v.message(179, "StreamTaken");
  v(1, "stream", x.stream);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, StreamIdle& x) {
  v.message(185, "StreamIdle");
  v(1, "stream", x.stream);
}

inline void fields(Fields& v, StreamEnded& x) {
  v.message(186, "StreamEnded");
  v(1, "stream", x.stream);
  v(2, "error", x.error);
}

}  // namespace heddle::remote
