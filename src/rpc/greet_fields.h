#pragma once

#include "base/describe.h"
#include "rpc/greet.h"

/// As rpc/link_fields.h, for what is said about links between hosts.
namespace heddle::rpc {

/// Longest text of a Greet [bytes].
inline constexpr std::size_t kGreetTextMost = 255;
/// Longest reason of a Bye [bytes].
inline constexpr std::size_t kByeTextMost = 1024;

inline void fields(Fields& v, Versions& x) {
  v.type("Versions");
  v(1, "least", x.least);
  v(2, "most", x.most);
  v.require(x, "a range", [](const Versions& versions) { return versions.least <= versions.most; });
}

inline void fields(Fields& v, Greet& x) {
  v.message(150, "Greet");
  v(1, "cluster", x.cluster);
  v(2, "role", x.role);
  v(3, "name", x.name);
  v(4, "incarnation", x.incarnation);
  v(5, "versions", x.versions);
  v(6, "build", x.build);
  v(7, "isa", x.isa);
  v(8, "use", x.use);
  v.require(x, "versions, and texts of at most 255 bytes", [](const Greet& greet) {
    for (const std::string* text :
         {&greet.cluster, &greet.role, &greet.name, &greet.build, &greet.isa}) {
      if (text->size() > kGreetTextMost) {
        return false;
      }
    }
    return greet.versions.least > 0;
  });
}

inline void fields(Fields& v, Alive& /*x*/) {
  v.message(151, "Alive");
}

inline void fields(Fields& v, Bye& x) {
  v.message(152, "Bye");
  v(1, "why", x.why);
  v.require(x, "at most 1024 bytes", [](const Bye& bye) { return bye.why.size() <= kByeTextMost; });
}

}  // namespace heddle::rpc
