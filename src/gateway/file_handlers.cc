#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "api/form.h"
#include "batches/line_file.h"
#include "gateway/batch_handlers.h"
#include "gateway/handlers.h"
#include "gateway/job_setup.h"
#include "gateway/text_work.h"
#include "gateway/upstream.h"

namespace heddle::gateway {

using batches::Book;
using batches::FileRecord;

namespace {

constexpr std::string_view kContent = "/content";
constexpr std::size_t kNameBytes = 255;
constexpr std::size_t kListed = 10'000;
constexpr std::uint64_t kPieceBytes = 256U << 10U;
constexpr std::int64_t kShortestStay = 3600;
constexpr std::int64_t kLongestStay = 30LL * 24 * 3600;

/// A file as it was sent: what is known of it, and its bytes in the body of the request.
struct SentFile {
  FileRecord record{};
  std::string_view content{};
};

/// Reads `expires_after[seconds]`; 0 where the file is to stay, nothing where it is wrong.
std::optional<std::int64_t> seconds_of(const std::vector<api::FormPart>& parts) {
  std::int64_t seconds = 0;
  for (const api::FormPart& part : parts) {
    const bool anchor = part.name == "expires_after[anchor]";
    if (anchor && part.value != "created_at") {
      return std::nullopt;
    }
    if (part.name != "expires_after[seconds]") {
      continue;
    }
    const char* const end = part.value.data() + part.value.size();
    const auto [stop, failure] = std::from_chars(part.value.data(), end, seconds);
    if (failure != std::errc() || stop != end || seconds < kShortestStay ||
        seconds > kLongestStay) {
      return std::nullopt;
    }
  }
  return seconds;
}

/// The upload in a form.
api::Parsed<SentFile> read_upload(const HttpRequest& request) {
  const std::string_view type = field_value(request.headers, "content-type");
  const std::string_view boundary = api::header_parameter(type, "boundary");
  if (!api::is_form(type) || boundary.empty()) {
    return api::invalid_request("", "want a form (multipart/form-data) with a boundary");
  }
  SentFile sent;
  bool there = false;
  const std::vector<api::FormPart> parts = api::form_parts(request.body, boundary);
  for (const api::FormPart& part : parts) {
    if (part.name == "purpose") {
      sent.record.purpose = part.value;
    } else if (part.name == "file") {
      there = true;
      sent.content = part.value;
      sent.record.name = api::shorten(part.file_name, kNameBytes);
    }
  }
  if (sent.record.purpose != "batch") {
    return api::invalid_request("purpose",
                                "purpose: is \"" +
                                    std::string(api::shorten(sent.record.purpose, kNameBytes)) +
                                    "\"; want batch, for which alone files are kept here");
  }
  if (!there) {
    return api::invalid_request("file", "file: is missing; want a file of lines of JSON");
  }
  const std::optional<std::int64_t> stay = seconds_of(parts);
  if (!stay) {
    return api::invalid_request(
        "expires_after", "expires_after: want {anchor: \"created_at\", seconds: 3600 to 2592000}");
  }
  sent.record.bytes = sent.content.size();
  sent.record.created_s = wall_clock_ms() / 1000;
  sent.record.expires_s = *stay > 0 ? sent.record.created_s + *stay : 0;
  return sent;
}

Task<void> upload(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  std::optional<api::Parsed<SentFile>> read;
  std::function<void()> work = [&read, &http] { read = read_upload(http.request()); };
  std::optional<api::ApiError> wrong = co_await work_on_body(*context, http, std::move(work));
  if (!wrong && std::holds_alternative<api::ApiError>(*read)) {
    wrong = std::get<api::ApiError>(std::move(*read));
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  SentFile sent = std::get<SentFile>(std::move(*read));
  sent.record.id = "file-" + draw_id(context->rng);
  sent.record.owner = http.request().principal.owner;
  std::function<Result<FileRecord>(Book&)> add = [&sent](Book& book) -> Result<FileRecord> {
    const Result<void> added = book.add_file(sent.record, sent.content);
    return added ? Result<FileRecord>(sent.record) : Result<FileRecord>(added.error());
  };
  const Result<FileRecord> added = co_await ask_book(*context, std::move(add));
  if (!added) {
    co_await respond_error(http, book_error(added.error()));
    co_return;
  }
  co_await respond_json(http, batches::file_json(*added));
}

Task<void> list(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  const HttpRequest& request = http.request();
  const auto page = page_wanted(request, kListed, kListed);
  if (const auto* wrong = std::get_if<api::ApiError>(&page)) {
    co_await respond_error(http, *wrong);
    co_return;
  }
  std::function<Result<std::vector<FileRecord>>(Book&)> find = [&request](Book& book) {
    return book.files(request.principal.owner);
  };
  Result<std::vector<FileRecord>> all = co_await ask_book(*context, std::move(find));
  if (!all) {
    co_await respond_error(http, book_error(all.error()));
    co_return;
  }
  if (query_value(request.query, "order").value_or("desc") != "asc") {
    std::ranges::reverse(*all);
  }
  const std::optional<std::string> purpose = query_value(request.query, "purpose");
  std::vector<std::pair<std::string, std::string>> objects;
  for (const FileRecord& file : *all) {
    if (!purpose || file.purpose == *purpose) {
      objects.emplace_back(file.id, batches::file_json(file));
    }
  }
  co_await respond_json(http, page_json(objects, std::get<PageWanted>(page)));
}

Task<Result<FileRecord>> find_file(Context& context, const HttpExchange& http, std::string id) {
  const std::string& owner = http.request().principal.owner;
  std::function<Result<FileRecord>(Book&)> find = [&owner, &id](Book& book) {
    return book.file(owner, id);
  };
  Result<FileRecord> found = co_await ask_book(context, std::move(find));
  co_return found;
}

/// Sends a file in pieces, as fast as the client takes them.
Task<void> send_content(std::shared_ptr<Context> context, HttpExchange& http, FileRecord file) {
  const std::shared_ptr<Book> book = context->batches->book();
  StreamHead head{.headers = {{"Content-Type", "application/octet-stream"}}, .length = file.bytes};
  bool begun = false;
  for (std::uint64_t at = 0; at < file.bytes || !begun;) {
    const std::uint64_t bytes = std::min(kPieceBytes, file.bytes - at);
    std::function<Result<std::string>(Book&)> read = [&file, at, bytes](Book& from) {
      return batches::read_piece(from.path_of(file.id), at, bytes);
    };
    Result<std::string> piece = co_await ask_book(*context, std::move(read));
    if (!piece || context->serving == nullptr) {
      http.drop();
      co_return;
    }
    Result<void> sent;
    if (begun) {
      sent = co_await http.send_part(std::move(*piece));
    } else {
      sent = co_await http.begin(std::move(head), std::move(*piece));
    }
    if (!sent || context->serving == nullptr) {
      co_return;
    }
    begun = true;
    at += bytes;
  }
  (void)co_await http.end(std::string());  // Nobody else wants it.
}

Task<void> show(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  const bool content = id.ends_with(kContent);
  if (content) {
    id.resize(id.size() - kContent.size());
  }
  const Result<FileRecord> file = co_await find_file(*context, http, std::move(id));
  if (!file) {
    co_await respond_error(http, book_error(file.error(), "file_id"));
    co_return;
  }
  if (content) {
    co_await send_content(std::move(context), http, *file);
  } else {
    co_await respond_json(http, batches::file_json(*file));
  }
}

Task<void> remove(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  if (context->batches == nullptr) {
    co_await respond_error(http, no_batches());
    co_return;
  }
  const std::string& owner = http.request().principal.owner;
  std::function<Result<std::string>(Book&)> erase = [&owner,
                                                     &id](Book& book) -> Result<std::string> {
    const Result<void> removed = book.remove_file(owner, id);
    return removed ? Result<std::string>(id) : Result<std::string>(removed.error());
  };
  const Result<std::string> removed = co_await ask_book(*context, std::move(erase));
  if (!removed) {
    co_await respond_error(http, book_error(removed.error(), "file_id"));
    co_return;
  }
  co_await respond_json(http, batches::deleted_json(*removed));
}

}  // namespace

std::vector<Endpoint> file_endpoints() {
  return {{{"POST", "/v1/files"}, Access::kInference, upload, Body::kAny},
          {{"GET", "/v1/files"}, Access::kInference, list},
          {{"GET", "/v1/files/{id}"}, Access::kInference, show},
          {{"DELETE", "/v1/files/{id}"}, Access::kInference, remove, Body::kAny}};
}

}  // namespace heddle::gateway
