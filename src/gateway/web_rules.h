#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "config/config.h"
#include "config/web_names.h"
#include "gateway/handlers.h"
#include "gateway/http_exchange.h"
#include "gateway/http_server.h"

namespace heddle::gateway {

/// What the headers of a request say that matters to who may come in; views of them.
struct HeadFacts {
  std::optional<std::string_view> host{};
  std::optional<std::string_view> origin{};
  bool doubled = false;  ///< One of these two is there twice.
  std::string_view authorization{};
  std::string_view api_key{};
  std::optional<std::string_view> content_type{};
  std::string_view encoding{};  ///< Content-Encoding, unless it is none.
  std::string_view site{};      ///< Sec-Fetch-Site, and so on.
  std::string_view mode{};
  std::string_view dest{};
  std::string_view asked_method{};  ///< Access-Control-Request-Method, and so on.
  std::string_view asked_headers{};
  bool asked_private = false;  ///< Whether a public page may reach into a private network.
  bool browser = false;        ///< It has what browsers add.
};
[[nodiscard]] HeadFacts read_facts_of(const HttpFields& headers);

/// What pages in a browser may ask. They can send requests to any server that their user reaches,
/// and read the answers of one that their own name resolves to; nothing in a request but these
/// headers tells them from programs of the user's own. Pure.
class WebRules {
 public:
  struct Options {
    std::vector<config::ListenAddress> listen{};
    bool keys_asked = false;  ///< Then a page cannot ask for what wants one.
    std::vector<std::string> allowed_hosts{};
    std::vector<std::string> cors_origins{};
    std::string machine{};  ///< The name of this one.
  };
  explicit WebRules(const Options& options);

  /// Why a request is refused; nothing: it is not, as far as this goes. `endpoint` is who would
  /// answer, null for nobody.
  [[nodiscard]] std::optional<api::ApiError> refuse(const HttpHead& head,
                                                    const HeadFacts& facts,
                                                    const Endpoint* endpoint) const;

  /// What its answer carries so that a page of a configured origin may read it.
  [[nodiscard]] HttpFields answer_headers(const HttpHead& head, const HeadFacts& facts) const;

 private:
  [[nodiscard]] bool is_known(const config::WebHost& host) const;
  [[nodiscard]] api::ApiError foreign_host(std::string_view host) const;
  [[nodiscard]] bool is_configured(std::string_view origin) const;

  bool check_hosts_ = false;
  bool loopback_ = true;              ///< It listens on nothing else.
  std::vector<std::string> hosts_{};  ///< Names, some with a port.
  bool any_origin_ = false;
  std::vector<std::string> origins_{};
};

}  // namespace heddle::gateway
