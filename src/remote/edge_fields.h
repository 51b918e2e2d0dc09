#pragma once

#include "remote/edge_messages.h"
#include "remote/stream_fields.h"

/// As core/message_fields.h, for the edges of pipes.
namespace heddle::remote {

inline void fields(Fields& v, OpenEdge& x) {
  v.message(221, "OpenEdge");
  v(1, "group", x.group);
  v(2, "stage", x.stage, kCount);
}

inline void fields(Fields& v, EdgeOpened& /*x*/) {
  v.message(222, "EdgeOpened");
}

}  // namespace heddle::remote
