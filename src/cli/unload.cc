#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_writer.h"

namespace heddle::cli {

int unload(const ClientOptions& options, const std::string& model) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  spec::JsonWriter body;
  body.begin_object().key("model").string(model).end_object();
  const Result<std::string> done = client.post("/models/unload", body.text());
  return done ? 0 : fail(done.error());
}

}  // namespace heddle::cli
