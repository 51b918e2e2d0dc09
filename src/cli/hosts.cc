#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"

namespace heddle::cli {
namespace {

std::string bytes_at(const spec::Json& host, std::string_view key) {
  return format_bytes(static_cast<std::uint64_t>(spec::number_at(host, {key})));
}

/// For how long it has been so: "12 s".
std::string since(const spec::Json& host) {
  const double ms = spec::number_at(host, {"since_ms"});
  return ms <= 0 ? "-" : format_duration(Duration(static_cast<std::int64_t>(ms * 1e6)));
}

std::string joined(const spec::Json::Array& texts) {
  std::string all;
  for (const spec::Json& text : texts) {
    all += (all.empty() ? "" : ", ") + spec::text_at(text, {});
  }
  return all.empty() ? "-" : printable(all);
}

}  // namespace

int hosts(const ClientOptions& options) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  const Result<std::string> body = client.get("/api/hosts");
  if (!body) {
    return fail(body.error());
  }
  if (options.json) {
    std::printf("%s\n", body->c_str());
    return 0;
  }
  const Result<spec::Json> answer = spec::parse_json(*body, address->url() + "/api/hosts");
  if (!answer) {
    return fail(answer.error());
  }
  std::vector<std::vector<std::string>> rows{
      {"HOST", "STATE", "SINCE", "DEVICES", "MEMORY", "FREE", "REQUESTS", "MODELS", "VERSION"}};
  std::string troubles;
  for (const spec::Json& host : spec::items_at(*answer, {"hosts"})) {
    const std::string name = printable(spec::text_at(host, {"name"}));
    const std::string version = spec::text_at(host, {"version"});
    rows.push_back({name,
                    spec::text_at(host, {"state"}),
                    since(host),
                    std::to_string(spec::items_at(host, {"devices"}).size()),
                    bytes_at(host, "bytes"),
                    bytes_at(host, "bytes_free"),
                    spec::text_at(host, {"requests_running"}),
                    joined(spec::items_at(host, {"models"})),
                    version.empty() ? "-" : printable(version)});
    if (const std::string why = spec::text_at(host, {"trouble"}); !why.empty()) {
      troubles += name + ": " + printable(why) + "\n";
    }
  }
  std::fputs(format_table(rows).c_str(), stdout);
  std::fputs(troubles.c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
