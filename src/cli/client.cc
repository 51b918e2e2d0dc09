#include "cli/client.h"

#include <utility>

#include "api/event_reader.h"
#include "http/blocking_client.h"
#include "spec/json_view.h"

namespace heddle::cli {

using namespace std::chrono_literals;

namespace {

constexpr Duration kWatchInterval = 150ms;

/// What the server said was wrong, or the whole body if it did not say it in JSON.
Error server_error(int status, const std::string& body) {
  const Code code = status == 404 ? Code::kNotFound : Code::kFailedPrecondition;
  const Result<spec::Json> json = spec::parse_json(body, "answer");
  const auto* message = json ? spec::value_at<std::string>(*json, {"error", "message"}) : nullptr;
  if (message != nullptr) {
    return {.code = code, .message = *message};
  }
  return {.code = code, .message = "status " + std::to_string(status) + ": " + body.substr(0, 500)};
}

/// Why there is no answer, with what can be done about it.
Error without_answer(Error why) {
  if (why.code == Code::kUnavailable) {
    why.message = "cannot reach " + why.message +
                  "; is \"heddle serve\" running there? (--url or HEDDLE_HOST say where)";
  } else if (why.code == Code::kFailedPrecondition) {
    why.message = "cannot trust " + why.message +
                  "; --ca FILE names who vouches for it, --insecure asks nobody";
  }
  return why;
}

bool is_success(int status) {
  return status >= 200 && status <= 299;
}

/// A model's progress of loading in the answer of GET /v1/models/{id}.
std::optional<double> progress_in(const std::string& body) {
  const Result<spec::Json> json = spec::parse_json(body, "model");
  const spec::Json* progress = json ? spec::value_at(*json, {"status", "progress"}) : nullptr;
  const bool told = progress != nullptr && !progress->is_null();
  return told ? std::optional(spec::number_at(*progress, {})) : std::nullopt;
}

}  // namespace

Result<HttpAddress> parse_server_address(std::string_view text) {
  constexpr const char* kWanted =
      "; want a server's address: http://host:port or https://host:port";
  Result<HttpAddress> address =
      parse_http_address(text, {.host = "127.0.0.1", .port = 8080, .http_port = 8080});
  if (!address) {
    return Error{.code = address.error().code, .message = address.error().message + kWanted};
  }
  if (!address->base_path.empty()) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + std::string(text) + "\" has a path" + kWanted};
  }
  return address;
}

class Client::Impl {
 public:
  Impl(HttpAddress address, http::Access access)
      : client_(std::move(address), {.access = std::move(access), .user_agent = "heddle"}) {
    client_.let_interrupt();
  }

  /// Runs one request to its end. The body of its answer where that was kept.
  Result<std::string> run(http::Request request) {
    request.body_max = http::kAnyLength;
    Result<http::Reply> reply = client_.exchange(std::move(request));
    if (shown_) {
      show_progress(std::nullopt);
    }
    if (!reply) {
      return without_answer(reply.error());
    }
    if (!is_success(reply->status)) {
      return server_error(reply->status, reply->body);
    }
    return std::move(reply->body);
  }

  void watch_loading(const std::string& model, std::function<void(std::optional<double>)> show) {
    show_ = std::move(show);
    client_.poll_meanwhile({.request = {.target = "/v1/models/" + model},
                            .interval = kWatchInterval,
                            .on_reply = [this](const Result<http::Reply>& reply) {
                              const bool told = reply && is_success(reply->status);
                              show_progress(told ? progress_in(reply->body) : std::nullopt);
                            }});
  }

 private:
  void show_progress(std::optional<double> progress) {
    if (progress || shown_) {
      show_(progress);
    }
    shown_ = progress.has_value();
  }

  http::BlockingClient client_;
  std::function<void(std::optional<double>)> show_{};
  bool shown_ = false;  ///< Progress is.
};

Client::Client(HttpAddress address, http::Access access)
    : impl_(std::make_unique<Impl>(std::move(address), std::move(access))) {}
Client::~Client() = default;

Result<std::string> Client::get(const std::string& path) {
  return impl_->run({.target = path});
}

Result<std::string> Client::post(const std::string& path, const std::string& body) {
  return impl_->run({.method = "POST", .target = path, .body = body});
}

Result<void> Client::stream(const std::string& path,
                            const std::string& body,
                            const OnEvent& on_event) {
  api::EventReader events;
  const auto on_part = [&](std::string_view bytes) {
    for (const std::string& data : events.push(bytes)) {
      on_event(data);
    }
  };
  const Result<std::string> done =
      impl_->run({.method = "POST", .target = path, .body = body, .on_part = on_part});
  return done ? Result<void>() : Result<void>(done.error());
}

void Client::watch_loading(const std::string& model,
                           std::function<void(std::optional<double>)> show) {
  impl_->watch_loading(model, std::move(show));
}

}  // namespace heddle::cli
