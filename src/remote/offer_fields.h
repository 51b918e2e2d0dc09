#pragma once

#include "core/manager_fields.h"
#include "host/offer.h"

/// As core/message_fields.h, for what hosts are and offer.
namespace heddle::host {

inline void fields(Fields& v, OfferedRank& x) {
  v.type("OfferedRank");
  v(1, "image_bytes", x.image_bytes);
  v(2, "footprints", x.footprints);
}

inline void fields(Fields& v, OfferedCut& x) {
  v.type("OfferedCut");
  v(1, "stages", x.stages);
}

inline void fields(Fields& v, Block& x) {
  v.type("Block");
  v(1, "devices", x.devices);
}

inline void fields(Fields& v, Offer& x) {
  v.type("Offer");
  v(1, "name", x.name);
  v(2, "failure", x.failure);
  v(3, "digest", x.digest);
  v(4, "written", x.written);
  v(5, "context", x.context, kCount);
  v(6, "ranks", x.ranks);
  v(7, "blocks", x.blocks);
  v(8, "keeps_requests", x.keeps_requests);
  v(9, "fetched", x.fetched);
  v(10, "cuts", x.cuts);
  v(11, "together", x.together);
}

inline void fields(Fields& v, Assignment& x) {
  v.type("Assignment");
  v(1, "name", x.name);
  v(2, "digest", x.digest);
  v(3, "ids", x.ids);
  v.require(x, "a name and at least one id", [](const Assignment& assignment) {
    return !assignment.name.empty() && !assignment.ids.empty();
  });
}

inline void fields(Fields& v, Holder& x) {
  v.type("Holder");
  v(1, "model", x.model);
  v(2, "hosts", x.hosts);
}

inline void fields(Fields& v, HostFacts& x) {
  v.type("HostFacts");
  v(1, "name", x.name);
  v(2, "isa", x.isa);
  v(3, "devices", x.devices);
  v(4, "guest_peers", x.guest_peers);
  v(5, "assigned", x.assigned);
  v(6, "network", x.network);
  v(7, "build", x.build);
  v(8, "step_tokens", x.step_tokens, kCount);
}

}  // namespace heddle::host
