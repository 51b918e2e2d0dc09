#include "gateway/web_handlers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gateway/handlers.h"
#include "gateway/task.h"
#include "gateway/web_files.h"

namespace heddle::gateway {

namespace {

constexpr std::string_view kFolder = "/ui/";
constexpr std::string_view kIndex = "index.html";
/// Nothing of anybody else's runs in the page, and it is shown in nobody else's.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) {
    return "text/html; charset=utf-8";
  }
  if (name.ends_with(".css")) {
    return "text/css; charset=utf-8";
  }
  return name.ends_with(".svg") ? "image/svg+xml" : "text/javascript; charset=utf-8";
}

Task<void> file(std::shared_ptr<Context>, HttpExchange& http, std::string) {
  const std::string_view asked = std::string_view(http.request().path).substr(kFolder.size());
  const std::string_view name = asked.empty() ? kIndex : asked;
  const auto files = web_files();
  const auto found = std::find_if(
      files.begin(), files.end(), [&](const WebFile& known) { return known.name == name; });
  HttpResponse response{.body = std::string(found->text),  // There is a route for each of them.
                        .content_type = std::string(content_type(name)),
                        .headers = {{"Content-Security-Policy", std::string(kPolicy)},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Cache-Control", "no-cache"}}};
  (void)co_await http.respond(std::move(response));  // Nobody else wants it.
}

Task<void> folder(std::shared_ptr<Context>, HttpExchange& http, std::string) {
  (void)co_await http.respond(see_page());  // Nobody else wants it.
}

/// "/ui/x" for each file x.
const std::vector<std::string>& paths() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> made;
    for (const WebFile& known : web_files()) {
      made.push_back(std::string(kFolder).append(known.name));
    }
    return made;
  }();
  return all;
}

}  // namespace

HttpResponse see_page() {
  return {.status = 303, .content_type = "text/plain", .headers = {{"Location", "ui/"}}};
}

std::vector<Endpoint> web_endpoints() {
  // The files tell nothing; what the page asks for wants a key as ever.
  std::vector<Endpoint> all{{{"GET", "/ui"}, Access::kOpen, folder},
                            {{"GET", kFolder}, Access::kOpen, file}};
  for (const std::string& path : paths()) {
    all.push_back({{"GET", path}, Access::kOpen, file});
  }
  return all;
}

}  // namespace heddle::gateway
