#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_writer.h"

namespace heddle::cli {

int load(const ClientOptions& options, const std::string& model) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  if (stderr_is_terminal()) {
    client.watch_loading(model, [&model](std::optional<double> progress) {
      show_bar("loading " + printable(model), progress);
    });
  }
  spec::JsonWriter body;
  body.begin_object().key("model").string(model).end_object();
  const Result<std::string> done = client.post("/models/load", body.text());
  return done ? 0 : fail(done.error());
}

}  // namespace heddle::cli
