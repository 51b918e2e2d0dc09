#include <cstdint>
#include <memory>
#include <utility>

#include "api/sse.h"
#include "base/log_tail.h"
#include "gateway/handlers.h"
#include "gateway/news_stream.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr const char* kPlainText = "text/plain; charset=utf-8";

/// Which lines are shown, as llama-swap tells them apart.
enum class About : std::uint8_t {
  kAll,
  kServer,  ///< Of no model.
  kModels,  ///< Of any model, or of one.
};

/// Lines as they come: what was logged after the last one that was taken.
class LogReader {
 public:
  /// @param model   Of lines about models, only those about it; empty for all.
  /// @param events  Whether lines become server-sent events.
  LogReader(About about, std::string model, bool events, bool with_history)
      : about_(about), model_(std::move(model)), events_(events) {
    if (const std::vector<log::Line> lines = log::tail(); !with_history && !lines.empty()) {
      last_ = lines.back().number;
    }
  }

  [[nodiscard]] std::string take() {
    std::string text;
    for (const log::Line& line : log::tail(last_)) {
      last_ = line.number;
      const bool shown = about_ == About::kAll || (about_ == About::kServer) == line.model.empty();
      if (shown && (model_.empty() || line.model == model_)) {
        text += events_ ? api::sse_event(line.text) : line.text + "\n";
      }
    }
    return text;
  }

 private:
  About about_;
  std::string model_;
  bool events_;
  std::uint64_t last_ = 0;
};

Task<void> logs(std::shared_ptr<Context>, HttpExchange& http, std::string) {
  LogReader reader(About::kAll, "", /*events=*/false, /*with_history=*/true);
  HttpResponse response{.body = reader.take(), .content_type = kPlainText};
  (void)co_await http.respond(std::move(response));  // Nobody else wants it.
}

/// Sends lines as they come.
Task<void> follow(std::shared_ptr<Context> context,
                  HttpExchange& http,
                  About about,
                  std::string model) {
  const bool events = http.request().accept.find(kEventStream) != std::string::npos;
  const bool history = http.request().query.find("no-history") == std::string::npos;
  const auto reader = std::make_shared<LogReader>(about, std::move(model), events, history);
  return stream_news(
      std::move(context), http, events ? kEventStream : kPlainText, events, [reader] {
        return reader->take();
      });
}

Task<void> follow_all(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await follow(std::move(context), http, About::kAll, "");
}

Task<void> follow_model(std::shared_ptr<Context> context, HttpExchange& http, std::string name) {
  const std::shared_ptr<CatalogModel> model = context->catalog.find(name);
  if (!model && (name == "proxy" || name == "upstream")) {
    const About about = name == "proxy" ? About::kServer : About::kModels;
    co_await follow(std::move(context), http, about, "");
    co_return;
  }
  if (!model) {
    co_await respond_error(http, api::model_not_found(name, context->catalog.listed_names()));
    co_return;
  }
  co_await follow(std::move(context), http, About::kModels, model->config.id);
}

}  // namespace

std::vector<Endpoint> log_endpoints() {
  return {{{"GET", "/logs"}, Access::kAdmin, logs},
          {{"GET", "/logs/stream"}, Access::kAdmin, follow_all},
          {{"GET", "/logs/stream/{id}"}, Access::kAdmin, follow_model}};
}

}  // namespace heddle::gateway
