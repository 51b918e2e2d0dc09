#include "fetch/http_get.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "fetch/curl_library.h"
#include "fetch/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::fetch {
namespace {

constexpr int kRedirectsMax = 10;
constexpr std::size_t kProblemBytes = 2000;
constexpr std::size_t kHeaderBytes = 4096;  ///< That are kept of one.
constexpr long kBufferBytes = 256L << 10U;

/// After it was loaded: by HttpGet::get().
const CurlLibrary& curl() {
  return *curl_library();
}

using Easy = std::unique_ptr<CURL, decltype([](CURL* easy) { curl().easy_cleanup(easy); })>;
using Lines =
    std::unique_ptr<curl_slist, decltype([](curl_slist* list) { curl().slist_free_all(list); })>;

/// What the callbacks of one request share.
struct Exchange {
  GetReply reply{};
  const Body& body;
  const std::stop_token& stop;
  std::uint64_t reading_rate = 0;        ///< As HttpOptions has it.
  std::vector<curl_socket_t> opened{};   ///< By this request.
  std::optional<Error> refused{};        ///< By `body`.
  std::optional<std::string> blocked{};  ///< Where the connection would have gone.
  bool enough = false;
  bool began = false;                 ///< `body` has been called.
  bool redirected = false;            ///< Not the first host any more.
  Reach own = Reach::kNetwork;        ///< Where the first host is.
  Reach connected = Reach::kNetwork;  ///< Where the last connection went.
  bool proxied = false;               ///< Connections go to a proxy, whose address says nothing.
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  return text;
}

void take_header(GetReply& reply, std::string_view line) {
  const std::size_t colon = line.find(':');
  if (line.starts_with("HTTP/") || colon == std::string_view::npos) {
    if (line.starts_with("HTTP/")) {  // A new head: after a 100, or a proxy's.
      reply = {};
    }
    return;
  }
  std::string name(line.substr(0, colon));
  std::ranges::transform(
      name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string value(trim(line.substr(colon + 1)));
  const std::array<std::pair<std::string_view, std::string*>, 6> fields{
      {{"etag", &reply.etag},
       {"link", &reply.link},
       {"last-modified", &reply.last_modified},
       {"content-range", &reply.content_range},
       {"x-error-code", &reply.error_code},
       {"x-amz-bucket-region", &reply.region}}};
  for (const auto& [field, target] : fields) {
    if (name == field) {
      *target = value.substr(0, kHeaderBytes);
    }
  }
  if (name == "content-length") {
    std::uint64_t bytes = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), bytes);
    if (failure == std::errc() && end == value.data() + value.size()) {
      reply.content_bytes = bytes;
    }
  }
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* exchange) {
  take_header(static_cast<Exchange*>(exchange)->reply, std::string_view(data, size * count));
  return size * count;
}

struct Answering {
  Exchange* exchange;
  CURL* easy;
};

void complete_head(Answering& answering) {
  GetReply& reply = answering.exchange->reply;
  long status = 0;
  (void)curl().easy_getinfo(answering.easy, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  curl_off_t wait = 0;
  (void)curl().easy_getinfo(answering.easy, CURLINFO_RETRY_AFTER, &wait);
  if (wait > 0) {
    reply.retry_after = std::chrono::seconds(std::min<curl_off_t>(wait, 3600));
  }
}

/// Gives the body a part; 0, which makes libcurl end, where it wants no more.
bool give(Exchange& exchange, std::span<const std::byte> part) {
  exchange.began = true;
  const Result<Next> next = exchange.body(exchange.reply, part);
  if (!next) {
    exchange.refused = next.error();
    return false;
  }
  exchange.enough = *next == Next::kEnough;
  return !exchange.enough;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* opaque) {
  auto& answering = *static_cast<Answering*>(opaque);
  Exchange& exchange = *answering.exchange;
  const std::size_t bytes = size * count;
  if (exchange.reply.status == 0) {
    complete_head(answering);
  }
  if (is_redirect(exchange.reply.status) && bytes > 0) {
    return bytes;  // To its end: libcurl tells where a redirect leads after that.
  }
  if (exchange.reply.status / 100 != 2) {
    std::string& problem = exchange.reply.problem;
    problem.append(data, std::min(bytes, kProblemBytes - std::min(kProblemBytes, problem.size())));
    // A long explanation is not worth its bytes.
    return problem.size() < kProblemBytes ? bytes : 0;
  }
  return give(exchange, std::as_bytes(std::span(data, bytes))) ? bytes : 0;
}

int on_progress(void* exchange, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Exchange*>(exchange)->stop.stop_requested() ? 1 : 0;
}

/// Whether a redirect may lead there.
bool is_allowed(Reach from, Reach to) {
  return to == Reach::kNetwork || to == from;
}

int port_of(const sockaddr_storage& address) {
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  return ntohs(plain->sa_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(plain)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(plain)->sin_port);
}

/// How long a connection is read from what has come, while more is on its way.
constexpr Duration kReadAhead = std::chrono::milliseconds(20);
constexpr double kLeastReceived = 64 << 10U;  ///< Less would not take a packet of loopback.
/// Systems allow no more to be asked for, unless told otherwise, and themselves find out how much
/// more is of use. Links that need so much empty their queues soon.
constexpr double kMostReceived = 208 << 10U;

int on_opened(void* exchange, curl_socket_t socket, curlsocktype /*purpose*/) {
  static_cast<Exchange*>(exchange)->opened.push_back(socket);
  return CURL_SOCKOPT_OK;
}

/// Bounds what is received and not read yet of the connection from that port, if this request
/// opened it: what comes in one round trip at that rate, and a little. Sockets that were given up
/// meanwhile may be somebody else's by now, which their ports tell.
void bound_received(const Exchange& exchange, int local_port) {
  for (const curl_socket_t socket : exchange.opened) {
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&local), &size) != 0 ||
        port_of(local) != local_port) {
      continue;
    }
    tcp_info info{};
    size = sizeof(info);
    (void)getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size);
    const Duration covered = std::chrono::microseconds(info.tcpi_rtt) + kReadAhead;
    const double bytes =
        std::max(to_seconds(covered) * static_cast<double>(exchange.reading_rate), kLeastReceived);
    if (bytes > kMostReceived) {
      return;
    }
    const int buffer = static_cast<int>(bytes);
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  }
}

int on_connected(void* opaque, char* address, char* /*local*/, int /*port*/, int local_port) {
  Exchange& exchange = *static_cast<Exchange*>(opaque);
  if (exchange.reading_rate > 0) {
    bound_received(exchange, local_port);
  }
  if (exchange.proxied) {
    return CURL_PREREQFUNC_OK;
  }
  exchange.connected = reach_of(address);
  if (exchange.redirected && !is_allowed(exchange.own, exchange.connected)) {
    exchange.blocked = address;
    return CURL_PREREQFUNC_ABORT;
  }
  return CURL_PREREQFUNC_OK;
}

/// Why a request failed as libcurl has it.
Error failure_of(CURLcode code, std::string_view url, const char* detail) {
  const std::string_view why = *detail != '\0' ? detail : curl().easy_strerror(code);
  const std::string where = shown(url);
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return {Code::kFailedPrecondition,
              fmt::format("{}: its certificate is not trusted: {}; SSL_CERT_FILE names the "
                          "authorities to trust",
                          where,
                          why)};
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return {Code::kFailedPrecondition, fmt::format("{} is no URL to fetch from: {}", where, why)};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return {Code::kUnavailable,
              fmt::format("{} is not reached: {}; is there a network, and does it want a proxy "
                          "(https_proxy)?",
                          where,
                          why)};
    case CURLE_OPERATION_TIMEDOUT:
      return {Code::kUnavailable,
              fmt::format("{}: no answer, or one that stalled: {}", where, why)};
    case CURLE_PARTIAL_FILE:
      return {Code::kUnavailable, fmt::format("{}: the answer ended early: {}", where, why)};
    default:
      return {Code::kUnavailable, fmt::format("{}: {}", where, why)};
  }
}

/// Whether connections may go to a proxy, by what libcurl itself goes by.
bool has_proxy() {
  constexpr std::array kNames{"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  return std::ranges::any_of(kNames, [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it.
    return value != nullptr && *value != '\0';
  });
}

template <class T>
void set(CURL* easy, CURLoption option, T value) {
  HEDDLE_CHECK(curl().easy_setopt(easy, option, value) == CURLE_OK);
}

bool same_place(std::string_view a, std::string_view b) {
  const auto one = split_url(a);
  const auto other = split_url(b);
  return one && other && one->scheme == other->scheme && one->host == other->host &&
         one->port == other->port;
}

/// Where a redirect leads, empty where it does not say; or why it is not followed.
Result<std::string> next_place(CURL* easy, std::string_view from, Reach own) {
  const char* target = nullptr;
  (void)curl().easy_getinfo(easy, CURLINFO_REDIRECT_URL, &target);
  if (target == nullptr) {
    return std::string();
  }
  const auto to = split_url(target);
  const auto refusal = [&](std::string_view why) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} redirects to {}, {}", shown(from), shown(target), why)};
  };
  if (!to) {
    return refusal("which is neither http nor https");
  }
  if (from.starts_with("https:") && to->scheme == "http") {
    return refusal("which is not encrypted as the first is");
  }
  if (!is_allowed(own, reach_of(to->host))) {
    return refusal("which is this machine or its link");
  }
  return std::string(target);
}

}  // namespace

/// Idle handles, each with its connections.
struct HttpGet::Handles {
  explicit Handles(const HttpOptions& wanted) : options(wanted) {}

  Easy take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) {
      Easy easy(curl().easy_init());
      HEDDLE_CHECK(easy != nullptr);
      return easy;
    }
    Easy easy = std::move(idle.back());
    idle.pop_back();
    curl().easy_reset(easy.get());
    return easy;
  }
  void give_back(Easy easy) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(easy));
  }

  HttpOptions options;
  std::mutex mutex{};
  std::vector<Easy> idle{};
};

HttpGet::HttpGet(const HttpOptions& options) : handles_(std::make_unique<Handles>(options)) {}

HttpGet::~HttpGet() = default;

namespace {

void set_options(CURL* easy, const HttpOptions& options) {
  using std::chrono::duration_cast;
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_USERAGENT, "heddle");
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  set(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
  set(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  set(easy, CURLOPT_NOPROGRESS, 0L);
  set(easy, CURLOPT_HEADERFUNCTION, on_header);
  set(easy, CURLOPT_WRITEFUNCTION, on_body);
  set(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
  set(easy, CURLOPT_PREREQFUNCTION, on_connected);
  set(easy, CURLOPT_SOCKOPTFUNCTION, on_opened);
  const auto connect = duration_cast<std::chrono::milliseconds>(options.connect_timeout).count();
  const auto stall = duration_cast<std::chrono::seconds>(options.stall_timeout).count();
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect));
  set(easy, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(stall)));
  set(easy, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.stall_bytes));
  if (!options.authorities.empty()) {
    set(easy, CURLOPT_CAINFO, options.authorities.c_str());
  }
}

Result<Lines> header_lines(const GetRequest& request, bool with_secrets) {
  Lines lines;
  for (const std::vector<std::string>* group : {&request.headers, &request.secrets}) {
    if (group == &request.secrets && !with_secrets) {
      continue;
    }
    for (const std::string& line : *group) {
      if (line.find_first_of("\r\n") != std::string::npos) {
        return Error{
            Code::kInvalidArgument,
            fmt::format("the header {} has an end of line in it", line.substr(0, line.find(':')))};
      }
      curl_slist* longer = curl().slist_append(lines.get(), line.c_str());
      HEDDLE_CHECK(longer != nullptr);
      (void)lines.release();
      lines.reset(longer);
    }
  }
  return lines;
}

/// One request without what its redirect leads to. The reply is in `exchange`.
Result<void> perform(CURL* easy,
                     const GetRequest& request,
                     const std::string& url,
                     Exchange& exchange) {
  const Result<Lines> lines = header_lines(request, same_place(request.url, url));
  if (!lines) {
    return lines.error();
  }
  std::array<char, CURL_ERROR_SIZE> detail{};
  Answering answering{.exchange = &exchange, .easy = easy};
  exchange.reply = {};
  exchange.proxied = has_proxy();
  set(easy, CURLOPT_URL, url.c_str());
  set(easy, CURLOPT_HTTPHEADER, lines->get());
  set(easy, CURLOPT_ERRORBUFFER, detail.data());
  set(easy, CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(easy, CURLOPT_WRITEDATA, static_cast<void*>(&answering));
  set(easy, CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  set(easy, CURLOPT_PREREQDATA, static_cast<void*>(&exchange));
  set(easy, CURLOPT_SOCKOPTDATA, static_cast<void*>(&exchange));
  const CURLcode code = curl().easy_perform(easy);
  set(easy, CURLOPT_HTTPHEADER, static_cast<curl_slist*>(nullptr));
  set(easy, CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  if (exchange.refused) {
    return *exchange.refused;
  }
  if (exchange.stop.stop_requested() && !exchange.enough) {
    return Error{Code::kCancelled, fmt::format("{}: stopped", shown(url))};
  }
  if (exchange.blocked) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} redirects to {}, whose address {} is this machine or its link",
                             shown(request.url),
                             shown(url),
                             *exchange.blocked)};
  }
  const bool cut =
      code == CURLE_WRITE_ERROR && (exchange.enough || !exchange.reply.problem.empty());
  if (code != CURLE_OK && !cut) {
    return failure_of(code, url, detail.data());
  }
  complete_head(answering);
  exchange.reply.url = url;
  return {};
}

}  // namespace

Result<GetReply> HttpGet::get(const GetRequest& request,
                              const Body& body,
                              const std::stop_token& stop) {
  if (!curl_library()) {
    return curl_library().error();
  }
  Easy easy = handles_->take();
  set_options(easy.get(), handles_->options);
  Exchange exchange{.body = body, .stop = stop, .reading_rate = handles_->options.reading_rate};
  std::string url = request.url;
  const auto first = split_url(url);
  exchange.own = first ? reach_of(first->host) : Reach::kNetwork;
  for (int hops = 0;; ++hops) {
    if (const Result<void> done = perform(easy.get(), request, url, exchange); !done) {
      return done.error();  // The handle goes: its connection may be in any state.
    }
    if (hops == 0 && !exchange.proxied && exchange.own == Reach::kNetwork) {
      exchange.own = exchange.connected;  // A name of this machine.
    }
    if (!is_redirect(exchange.reply.status)) {
      break;
    }
    if (hops == kRedirectsMax) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("{} redirects more than {} times", shown(request.url), hops)};
    }
    Result<std::string> next = next_place(easy.get(), url, exchange.own);
    if (!next) {
      return next.error();
    }
    if (next->empty()) {
      break;  // S3 says so where a bucket is in another region.
    }
    url = std::move(next).value();
    exchange.redirected = true;
  }
  const bool is_good = exchange.reply.status / 100 == 2;
  if (is_good && !exchange.began && !give(exchange, {}) && exchange.refused) {
    return *exchange.refused;
  }
  handles_->give_back(std::move(easy));
  return std::move(exchange.reply);
}

Result<HttpGet::Text> HttpGet::get_text(const GetRequest& request,
                                        std::uint64_t bytes_max,
                                        const std::stop_token& stop) {
  Text text;
  const auto take = [&](const GetReply& /*head*/, std::span<const std::byte> part) -> Result<Next> {
    if (text.body.size() + part.size() > bytes_max) {
      return Error{Code::kCorrupt,
                   fmt::format("{} is longer than {} bytes", shown(request.url), bytes_max)};
    }
    text.body.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Next::kMore;
  };
  Result<GetReply> reply = get(request, take, stop);
  if (!reply) {
    return reply.error();
  }
  text.reply = std::move(reply).value();
  return text;
}

}  // namespace heddle::fetch
