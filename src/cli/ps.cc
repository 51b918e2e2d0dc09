#include <cstdio>

#include "base/units.h"
#include "cli/client.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace heddle::cli {

namespace {

/// What of GPUs is held by programs that are not heddle's.
void print_others(Client& client) {
  const Result<std::string> body = client.get("/api/devices");
  const auto devices =
      body ? spec::parse_json(*body, "/api/devices") : Result<spec::Json>(body.error());
  if (!devices) {
    return;  // A server that does not tell has answered all the same.
  }
  for (const spec::Json& device : items(*devices, {"devices"})) {
    const auto bytes = static_cast<std::uint64_t>(number(device, {"others_bytes"}));
    if (bytes > 0) {
      std::printf("%s: other programs hold %s of it\n",
                  printable(text(device, {"name"})).c_str(),
                  format_bytes(bytes).c_str());
    }
  }
}

}  // namespace

int ps(const ClientOptions& options) {
  const Result<ServerAddress> address = parse_server_address(options.url, options.api_key);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address);
  const Result<std::string> body = client.get("/running");
  if (!body) {
    return fail(body.error());
  }
  if (options.json) {
    std::printf("%s\n", body->c_str());
    return 0;
  }
  const Result<spec::Json> running = spec::parse_json(*body, address->url() + "/running");
  if (!running) {
    return fail(running.error());
  }
  std::vector<std::vector<std::string>> rows{
      {"MODEL", "STATE", "DEVICE", "WEIGHTS", "RUNNING", "WAITING"}};
  for (const spec::Json& model : items(*running, {"running"})) {
    rows.push_back({printable(text(model, {"model"})),
                    text(model, {"residency"}),
                    text(model, {"device"}),
                    format_bytes(static_cast<std::uint64_t>(number(model, {"bytes"}))),
                    text(model, {"requests_running"}),
                    text(model, {"requests_waiting"})});
  }
  std::fputs(format_table(rows).c_str(), stdout);
  print_others(client);
  return 0;
}

}  // namespace heddle::cli
