#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "base/units.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"

namespace heddle::cli {

namespace {

/// What a device's memory is used for: its pages by what they hold, in bytes.
void print_pages(const spec::Json& device) {
  const auto page = spec::number_at(device, {"page_bytes"});
  const auto of = [&](std::initializer_list<const char*> kinds) {
    double pages = 0;
    for (const char* kind : kinds) {
      pages += spec::number_at(device, {"pages", kind, "held"});
    }
    return format_bytes(static_cast<std::uint64_t>(pages * page));
  };
  std::printf(
      "%s: weights %s, KV %s, cached prefixes %s, overhead %s, free %s\n",
      printable(spec::text_at(device, {"name"})).c_str(),
      of({"weights_active", "weights_idle"}).c_str(),
      of({"kv_own", "shard_pipe"}).c_str(),
      of({"kv_cached"}).c_str(),
      of({"overhead"}).c_str(),
      format_bytes(static_cast<std::uint64_t>(spec::number_at(device, {"pages_free"}) * page))
          .c_str());
}

/// "cpu0: 12 of 24 experts of mixture are there; of 4000 that its layers took 93 % were", of each
/// model whose experts take turns.
void print_experts(const spec::Json& device) {
  for (const spec::Json& experts : spec::items_at(device, {"experts"})) {
    const double hits = spec::number_at(experts, {"hits"});
    const double taken = hits + spec::number_at(experts, {"misses"});
    if (spec::number_at(experts, {"resident"}) == 0) {
      continue;  // Nobody has asked the model, or it is not there.
    }
    std::printf(
        "%s: %.0f of %.0f experts of %s are there; of %.0f that its layers took %.0f %% were\n",
        printable(spec::text_at(device, {"name"})).c_str(),
        spec::number_at(experts, {"resident"}),
        spec::number_at(experts, {"experts"}),
        printable(spec::text_at(experts, {"model"})).c_str(),
        taken,
        taken > 0 ? 100 * hits / taken : 0.0);
  }
}

/// "adder: fetched from s3://models/adder: 1.00 MiB of 1.35 MiB, 2.10 MB/s".
void print_fetch(const spec::Json& model) {
  if (spec::text_at(model, {"fetch", "from"}).empty()) {
    return;
  }
  const auto bytes = [&](const char* key) {
    return format_bytes(static_cast<std::uint64_t>(spec::number_at(model, {"fetch", key})));
  };
  std::printf("%s: being fetched from %s: %s of %s, %s\n",
              printable(spec::text_at(model, {"model"})).c_str(),
              printable(spec::text_at(model, {"fetch", "from"})).c_str(),
              bytes("bytes").c_str(),
              bytes("total_bytes").c_str(),
              format_rate(spec::number_at(model, {"fetch", "bytes_per_second"})).c_str());
}

bool is_down(const spec::Json& device) {
  const bool* up = spec::value_at<bool>(device, {"up"});
  return up != nullptr && !*up;
}

/// What the memory of devices is used for, and what programs that are not heddle's hold of GPUs.
void print_devices(Client& client) {
  const Result<std::string> body = client.get("/api/devices");
  const auto devices =
      body ? spec::parse_json(*body, "/api/devices") : Result<spec::Json>(body.error());
  if (!devices) {
    return;  // A server that does not tell has answered all the same.
  }
  for (const spec::Json& device : spec::items_at(*devices, {"devices"})) {
    if (is_down(device)) {
      std::printf("%s: down, is being started; the log says why\n",
                  printable(spec::text_at(device, {"name"})).c_str());
    } else if (spec::number_at(device, {"page_bytes"}) > 0) {
      print_pages(device);
      print_experts(device);
    }
    if (spec::number_at(device, {"stage", "stages"}) > 0) {
      std::printf("%s: stage %.0f of %.0f of %s\n",
                  printable(spec::text_at(device, {"name"})).c_str(),
                  spec::number_at(device, {"stage", "stage"}) + 1,
                  spec::number_at(device, {"stage", "stages"}),
                  printable(spec::text_at(device, {"stage", "model"})).c_str());
    }
    const auto bytes = static_cast<std::uint64_t>(spec::number_at(device, {"others_bytes"}));
    if (bytes > 0) {
      std::printf("%s: other programs hold %s of it\n",
                  printable(spec::text_at(device, {"name"})).c_str(),
                  format_bytes(bytes).c_str());
    }
  }
}

}  // namespace

int ps(const ClientOptions& options) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
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
  for (const spec::Json& model : spec::items_at(*running, {"running"})) {
    rows.push_back({printable(spec::text_at(model, {"model"})),
                    spec::text_at(model, {"residency"}),
                    spec::text_at(model, {"device"}),
                    format_bytes(static_cast<std::uint64_t>(spec::number_at(model, {"bytes"}))),
                    spec::text_at(model, {"requests_running"}),
                    spec::text_at(model, {"requests_waiting"})});
  }
  std::fputs(format_table(rows).c_str(), stdout);
  for (const spec::Json& model : spec::items_at(*running, {"running"})) {
    print_fetch(model);
  }
  print_devices(client);
  return 0;
}

}  // namespace heddle::cli
