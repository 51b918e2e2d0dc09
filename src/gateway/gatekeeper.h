#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gateway/api_keys.h"
#include "gateway/handlers.h"
#include "gateway/http_server.h"
#include "gateway/web_rules.h"

namespace heddle::gateway {

/// Says who may ask what, by the head of a request: what a web page may, then what a key may.
/// Loop thread.
class Gatekeeper {
 public:
  explicit Gatekeeper(std::shared_ptr<const Routing> routing);

  /// Takes over keys and rules. Before the first call nobody is let in.
  void assign(ApiKeys keys, WebRules rules);

  [[nodiscard]] Admission admit(const HttpHead& asked) const;

 private:
  [[nodiscard]] api::Parsed<Principal> admit(const HeadFacts& facts,
                                             const HttpHead& head,
                                             const Endpoint* endpoint) const;

  std::shared_ptr<const Routing> routing_;
  struct Rules {
    ApiKeys keys;
    WebRules web;
  };
  std::optional<Rules> rules_{};
};

}  // namespace heddle::gateway
