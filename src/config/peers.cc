#include "config/peers.h"

#include <set>
#include <utility>

#include "config/engine_declare.h"

namespace heddle::config {

namespace {

void declare_address(Fields& f, PeerConfig& peer) {
  std::string proxy;
  f.text({"proxy", "URL before the paths of requests, such as https://api.example.com."}, proxy);
  f.require("proxy", "the URL of the peer, such as https://api.example.com");
  if (proxy.empty()) {
    return;
  }
  const bool http = proxy.starts_with("http://") || proxy.starts_with("https://");
  const Result<HttpAddress> address = parse_http_address(proxy, {});
  if (!http || !address) {
    f.reject("proxy",
             "is \"" + proxy + "\"; want an address such as https://api.example.com" +
                 (http ? ": " + address.error().message : ""));
    return;
  }
  peer.address = *address;
}

void declare_timeouts(Fields& f, PeerConfig& peer) {
  f.section({"timeouts", "Of connections to it."}, [&peer](Fields& inner) {
    inner.seconds({"connect", "To the connection."}, peer.connect_timeout);
    inner.seconds({"tlsHandshake", "To the end of the TLS handshake."}, peer.tls_timeout);
    inner.seconds({"responseHeader", "To the head of an answer; 0 means no limit of its own."},
                  peer.response_timeout);
    require_positive(inner, "connect", peer.connect_timeout);
    require_positive(inner, "tlsHandshake", peer.tls_timeout);
    inner.ignore({"keepalive", "idleConn", "expectContinue"},
                 "has no effect: each request has a connection of its own");
  });
}

}  // namespace

void declare_peers(Fields& fields, Config& config) {
  fields.named_sections(
      {"peers", "Servers and hosted APIs elsewhere that have further models, by name."},
      [&config](const std::string& name, Fields& f) {
        PeerConfig peer{.name = name};
        declare_address(f, peer);
        f.text({"apiKey", "Sent to it as Authorization: Bearer and x-api-key."}, peer.api_key);
        if (peer.api_key.find_first_of("\r\n") != std::string::npos) {
          f.reject("apiKey", "has a line break, which no header can have");
        }
        f.path({"ca",
                "PEM file of who vouches for its certificate; whom the system trusts when absent."},
               peer.ca);
        f.texts({"models", "Names of its models that requests may use."}, peer.models);
        f.require("models", "the names of the peer's models");
        f.section({"filters", "Changes to requests before they go to it."},
                  [&peer](Fields& inner) { declare_body_filters(inner, peer.filters); });
        declare_timeouts(f, peer);
        config.peers.push_back(std::move(peer));
      });
}

void check_peers(const Config& config, Diagnosis& diagnosis) {
  std::set<std::string> names;
  for (const ModelConfig& model : config.models) {
    names.insert(model.id);
    names.insert(model.aliases.begin(), model.aliases.end());
  }
  for (const PeerConfig& peer : config.peers) {
    for (const std::string& model : peer.models) {
      if (model.empty() || !names.insert(model).second) {
        diagnosis.problems.push_back(diagnosis.origin + ": peers." + peer.name + ".models: \"" +
                                     model + "\" is empty, or the name of another model already");
      }
    }
  }
}

}  // namespace heddle::config
