#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::cli {
namespace {

/// Between looks at what a host still has.
constexpr std::chrono::milliseconds kLook{500};

/// What a host still has, for people; empty: nothing.
Result<std::string> left_on(Client& client, const std::string& name) {
  const Result<std::string> body = client.get("/api/hosts");
  if (!body) {
    return body.error();
  }
  const Result<spec::Json> answer = spec::parse_json(*body, "/api/hosts");
  if (!answer) {
    return answer.error();
  }
  for (const spec::Json& host : spec::items_at(*answer, {"hosts"})) {
    if (spec::text_at(host, {"name"}) != name) {
      continue;
    }
    const std::string state = spec::text_at(host, {"state"});
    if (state == "here") {
      return std::string("it has not heard of it yet");  // Or somebody had it stay after all.
    }
    std::string left;
    for (const spec::Json& model : spec::items_at(host, {"models"})) {
      left += (left.empty() ? "" : ", ") + spec::text_at(model, {});
    }
    const std::string requests = spec::text_at(host, {"requests_running"});
    return left.empty() ? std::string() : left + " (" + requests + " requests)";
  }
  return Error{.code = Code::kNotFound, .message = "host \"" + name + "\" is no longer listed"};
}

/// Returns when the host is empty, having said what it waits for whenever that changes.
Result<void> wait_until_empty(Client& client, const std::string& name) {
  std::string said;
  while (true) {
    const Result<std::string> left = left_on(client, name);
    if (!left) {
      return left.error();
    }
    if (left->empty()) {
      return {};
    }
    if (*left != said) {
      said = *left;
      std::fprintf(
          stderr, "waiting for %s: %s\n", printable(name).c_str(), printable(said).c_str());
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

int drain(const ClientOptions& options, const std::string& host, bool undo, bool wait) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  spec::JsonWriter body;
  body.begin_object().key("host").string(host).end_object();
  const Result<std::string> done =
      client.post(undo ? "/api/hosts/undrain" : "/api/hosts/drain", body.text());
  if (!done) {
    return fail(done.error());
  }
  if (undo) {
    std::printf("%s takes requests again\n", printable(host).c_str());
    return 0;
  }
  if (!wait) {
    std::printf("%s takes nothing new; heddle hosts shows what is left\n", printable(host).c_str());
    return 0;
  }
  if (const Result<void> empty = wait_until_empty(client, host); !empty) {
    return fail(empty.error());
  }
  std::printf("%s is empty: its agent can be ended\n", printable(host).c_str());
  return 0;
}

}  // namespace heddle::cli
