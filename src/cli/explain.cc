#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "base/units.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"

namespace heddle::cli {
namespace {

/// "12 s ago".
std::string ago(const spec::Json& decision) {
  const double ms = spec::number_at(decision, {"age_ms"});
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
  for (const spec::Json& each : spec::items_at(answer, {"models"})) {
    if (!model.empty() && spec::text_at(each, {"model"}) != model) {
      continue;
    }
    const bool judged =
        spec::number_at(each, {"error"}) > 0 || !spec::text_at(each, {"error"}).empty();
    rows.push_back({printable(spec::text_at(each, {"model"})),
                    spec::text_at(each, {"in_system"}),
                    rounded(spec::number_at(each, {"expected_mean"})),
                    rounded(spec::number_at(each, {"expected_peak"})),
                    judged ? rounded(100 * spec::number_at(each, {"error"})) + " %" : "-",
                    spec::text_at(each, {"starts", "warm"}),
                    spec::text_at(each, {"starts", "hit"}),
                    spec::text_at(each, {"starts", "attach"}),
                    spec::text_at(each, {"starts", "miss"})});
  }
  std::fputs(format_table(rows).c_str(), stdout);
}

/// Why it was decided, and what came of what was predicted: "...; it took 350 ms".
std::string why(const spec::Json& decision) {
  const double was = spec::number_at(decision, {"first_token_was_ms"});
  return printable(spec::text_at(decision, {"why"})) +
         (was > 0 ? "; it took " + format_duration(Duration(static_cast<std::int64_t>(was * 1e6)))
                  : "");
}

void print_decisions(const spec::Json& answer) {
  std::vector<std::vector<std::string>> rows{{"WHEN", "DECISION", "MODEL", "DEVICE", "FOR", "WHY"}};
  for (const spec::Json& each : spec::items_at(answer, {"decisions"})) {
    rows.push_back({ago(each),
                    spec::text_at(each, {"decision"}),
                    printable(spec::text_at(each, {"model"})),
                    spec::text_at(each, {"device"}),
                    printable(spec::text_at(each, {"for"})),
                    why(each)});
  }
  if (rows.size() == 1) {
    std::puts("Nothing was decided yet.");
    return;
  }
  std::fputs(format_table(rows).c_str(), stdout);
}

/// Whose decisions those about a model are: its own, or of a LoRA adapter its base's. An error
/// where the server has no model of this name, with the name that was probably meant.
Result<std::string> decided_as(Client& client, const std::string& model) {
  const auto base_of = [&model](const spec::Json& one) {
    const std::string parent = spec::text_at(one, {"parent"});
    return parent.empty() ? model : parent;
  };
  const Result<std::string> listed = client.get("/v1/models");
  if (!listed) {
    return listed.error();
  }
  const Result<spec::Json> models = spec::parse_json(*listed, "/v1/models");
  if (!models) {
    return models.error();
  }
  std::vector<std::string> names;
  for (const spec::Json& each : spec::items_at(*models, {"data"})) {
    names.push_back(spec::text_at(each, {"id"}));
    if (names.back() == model) {
      return base_of(each);
    }
  }
  if (const Result<std::string> hidden = client.get("/v1/models/" + model)) {
    const Result<spec::Json> one = spec::parse_json(*hidden, "/v1/models");
    return one ? Result<std::string>(base_of(*one)) : one.error();
  }
  const std::string meant = nearest(model, {names.begin(), names.end()});
  return Error{.code = Code::kNotFound,
               .message = "there is no model \"" + printable(model) + "\"" +
                          (meant.empty() ? "" : "; did you mean \"" + printable(meant) + "\"?") +
                          (meant.empty() ? "; " : " ") + "heddle list shows them"};
}

}  // namespace

int explain(const ClientOptions& options, const std::string& asked) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  std::string model;
  if (!asked.empty()) {
    const Result<std::string> known = decided_as(client, asked);
    if (!known) {
      return fail(known.error());
    }
    model = *known;
  }
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
  if (model != asked) {
    std::printf("%s is an adapter of %s: where its requests run is decided for that.\n\n",
                printable(asked).c_str(),
                printable(model).c_str());
  }
  print_forecasts(*loads, model);
  std::putchar('\n');
  print_decisions(*acts);
  return 0;
}

}  // namespace heddle::cli
