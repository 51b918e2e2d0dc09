#include <cstdio>

#include "cli/client.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace heddle::cli {

int list(const ClientOptions& options) {
  const Result<ServerAddress> address = parse_server_address(options.url, options.access);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address);
  const Result<std::string> body = client.get("/v1/models");
  if (!body) {
    return fail(body.error());
  }
  if (options.json) {
    std::printf("%s\n", body->c_str());
    return 0;
  }
  const Result<spec::Json> models = spec::parse_json(*body, address->url() + "/v1/models");
  if (!models) {
    return fail(models.error());
  }
  std::vector<std::vector<std::string>> rows{{"MODEL", "STATE", "DEVICE", "DESCRIPTION"}};
  for (const spec::Json& model : items(*models, {"data"})) {
    const std::string failure = text(model, {"status", "error"});
    rows.push_back({printable(text(model, {"id"})),
                    text(model, {"status", "value"}),
                    text(model, {"status", "device"}),
                    printable(failure.empty() ? text(model, {"description"}) : failure)});
  }
  std::fputs(format_table(rows).c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
