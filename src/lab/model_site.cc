#include "lab/model_site.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "base/file.h"
#include "base/thread.h"
#include "gateway/http_server.h"
#include "gateway/task.h"

namespace heddle::lab {

namespace {

using gateway::HttpExchange;
using gateway::HttpResponse;
using gateway::Task;

const HttpResponse kNotFound{.status = 404, .content_type = "text/plain"};

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

/// The file of "/2/config.json", in the folder at 2; nothing where the path names none.
std::optional<std::filesystem::path> file_at(const std::vector<std::string>& folders,
                                             std::string_view path) {
  const std::size_t slash = path.find('/', 1);
  if (slash == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view name = path.substr(slash + 1);
  const auto index = number<std::size_t>(path.substr(1, slash - 1));
  const bool plain = !name.empty() && name.find('/') == std::string_view::npos && name != "..";
  return plain && index && *index < folders.size()
             ? std::optional(std::filesystem::path(folders[*index]) / name)
             : std::nullopt;
}

/// The part of a file that is asked for.
struct Part {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// "bytes=0-99" of a file of so many bytes; nothing where all is asked for.
std::optional<Part> asked_part(const gateway::HttpFields& headers, std::uint64_t bytes) {
  for (const auto& [name, value] : headers) {
    const std::string_view text = value;
    const std::size_t dash = text.find('-');
    if ((name != "range" && name != "Range") || !text.starts_with("bytes=") ||
        dash == std::string_view::npos) {
      continue;
    }
    const auto first = number<std::uint64_t>(text.substr(6, dash - 6));
    const auto last = number<std::uint64_t>(text.substr(dash + 1));
    if (first && *first < bytes) {
      return Part{.begin = *first, .end = std::min(last.value_or(bytes - 1), bytes - 1) + 1};
    }
  }
  return std::nullopt;
}

HttpResponse answer(const std::vector<std::string>& folders, const gateway::HttpRequest& request) {
  const auto path = file_at(folders, gateway::percent_decode(request.path));
  const Result<File> file =
      path ? File::open(*path) : Result<File>(Error{Code::kNotFound, "no such path"});
  if (!file) {
    return kNotFound;
  }
  std::error_code unknown;
  const auto written = std::filesystem::last_write_time(*path, unknown).time_since_epoch();
  const std::optional<Part> asked = asked_part(request.headers, file->bytes());
  const Part part = asked.value_or(Part{.end = file->bytes()});
  HttpResponse response{.status = asked ? 206 : 200,
                        .body = std::string(part.end - part.begin, '\0'),
                        .content_type = "application/octet-stream"};
  response.headers.emplace_back(
      "ETag", "\"" + std::to_string(file->bytes()) + "-" + std::to_string(written.count()) + "\"");
  if (asked) {
    response.headers.emplace_back("Content-Range",
                                  "bytes " + std::to_string(part.begin) + "-" +
                                      std::to_string(part.end - 1) + "/" +
                                      std::to_string(file->bytes()));
  }
  const auto target = std::as_writable_bytes(std::span(response.body));
  return file->read(part.begin, target) ? response : kNotFound;
}

}  // namespace

class ModelSite::Impl {
 public:
  explicit Impl(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  ~Impl() {
    loop_.stop();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> start() {
    auto server = gateway::HttpServer::listen(
        loop_,
        {.listen = {{.host = "127.0.0.1", .scheme = config::Scheme::kHttp}}},
        [](const gateway::HttpHead& /*head*/) {
          return gateway::Admission{.principal = gateway::Principal{}};
        },
        [this](HttpExchange& http) -> Task<void> {
          (void)co_await http.respond(answer(folders_, http.request()));  // Its client asks again.
        });
    if (!server) {
      return server.error();
    }
    server_ = std::move(*server);
    Result<Thread> thread = Thread::start({.name = "model site"}, [this] { loop_.run(); });
    if (!thread) {
      return thread.error();
    }
    thread_ = std::move(*thread);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const { return server_->addresses().front().port; }

 private:
  const std::vector<std::string> folders_;
  boost::asio::io_context loop_{};
  std::unique_ptr<gateway::HttpServer> server_{};
  Thread thread_{};
};

ModelSite::ModelSite(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelSite::~ModelSite() = default;

Result<std::unique_ptr<ModelSite>> ModelSite::start(std::vector<std::string> folders) {
  auto impl = std::make_unique<Impl>(std::move(folders));
  if (const Result<void> started = impl->start(); !started) {
    return started.error();
  }
  return std::unique_ptr<ModelSite>(new ModelSite(std::move(impl)));
}

std::string ModelSite::url(std::size_t index) const {
  return "http://127.0.0.1:" + std::to_string(impl_->port()) + "/" + std::to_string(index);
}

}  // namespace heddle::lab
