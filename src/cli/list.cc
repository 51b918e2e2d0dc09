#include <cstdio>

#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"

namespace heddle::cli {

int list(const ClientOptions& options) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
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
  for (const spec::Json& model : spec::items_at(*models, {"data"})) {
    const std::string failure = spec::text_at(model, {"status", "error"});
    rows.push_back({printable(spec::text_at(model, {"id"})),
                    spec::text_at(model, {"status", "value"}),
                    spec::text_at(model, {"status", "device"}),
                    printable(failure.empty() ? spec::text_at(model, {"description"}) : failure)});
  }
  std::fputs(format_table(rows).c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
