#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_writer.h"

namespace heddle::cli {

int apply(const ClientOptions& options, const std::string& file, bool dry_run) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return fail({.code = Code::kNotFound,
                 .message = "read configuration \"" + file + "\": no such file, or not readable"});
  }
  Client client(*address, options.access);
  spec::JsonWriter body;
  body.begin_object().key("configuration").string(text.str());
  body.key("dry_run").boolean(dry_run).end_object();
  if (const Result<std::string> done = client.post("/api/configuration", body.text()); !done) {
    return fail(done.error());
  }
  std::printf(dry_run ? "%s could be applied\n" : "%s is applied\n", printable(file).c_str());
  return 0;
}

}  // namespace heddle::cli
