#include <cstdio>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/client.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace heddle::cli {
namespace {

/// "12 s ago".
std::string ago(const spec::Json& decision) {
  const double ms = number(decision, {"age_ms"});
  return format_duration(Duration(static_cast<std::int64_t>(ms * 1e6))) + " ago";
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

void print_forecasts(const spec::Json& answer, const std::string& model) {
  std::vector<std::vector<std::string>> rows{
      {"MODEL", "NOW", "EXPECTED", "PEAK", "OFF BY", "WARM", "HIT", "ATTACH", "MISS"}};
  for (const spec::Json& each : items(answer, {"models"})) {
    if (!model.empty() && text(each, {"model"}) != model) {
      continue;
    }
    const bool judged = number(each, {"error"}) > 0 || !text(each, {"error"}).empty();
    rows.push_back({printable(text(each, {"model"})),
                    text(each, {"in_system"}),
                    rounded(number(each, {"expected_mean"})),
                    rounded(number(each, {"expected_peak"})),
                    judged ? rounded(100 * number(each, {"error"})) + " %" : "-",
                    text(each, {"starts", "warm"}),
                    text(each, {"starts", "hit"}),
                    text(each, {"starts", "attach"}),
                    text(each, {"starts", "miss"})});
  }
  std::fputs(format_table(rows).c_str(), stdout);
}

void print_decisions(const spec::Json& answer) {
  std::vector<std::vector<std::string>> rows{{"WHEN", "DECISION", "MODEL", "DEVICE", "FOR", "WHY"}};
  for (const spec::Json& each : items(answer, {"decisions"})) {
    rows.push_back({ago(each),
                    text(each, {"decision"}),
                    printable(text(each, {"model"})),
                    text(each, {"device"}),
                    printable(text(each, {"for"})),
                    printable(text(each, {"why"}))});
  }
  if (rows.size() == 1) {
    std::puts("Nothing was decided yet.");
    return;
  }
  std::fputs(format_table(rows).c_str(), stdout);
}

}  // namespace

int explain(const ClientOptions& options, const std::string& model) {
  const Result<ServerAddress> address = parse_server_address(options.url, options.access);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address);
  const std::string path = "/api/decisions" + (model.empty() ? "" : "?model=" + model);
  const Result<std::string> decisions = client.get(path);
  if (!decisions) {
    return fail(decisions.error());
  }
  if (options.json) {
    std::printf("%s\n", decisions->c_str());
    return 0;
  }
  const Result<std::string> forecasts = client.get("/api/forecasts");
  if (!forecasts) {
    return fail(forecasts.error());
  }
  const Result<spec::Json> loads = spec::parse_json(*forecasts, address->url() + "/api/forecasts");
  const Result<spec::Json> acts = spec::parse_json(*decisions, address->url() + path);
  if (!loads || !acts) {
    return fail(loads ? acts.error() : loads.error());
  }
  print_forecasts(*loads, model);
  std::putchar('\n');
  print_decisions(*acts);
  return 0;
}

}  // namespace heddle::cli
