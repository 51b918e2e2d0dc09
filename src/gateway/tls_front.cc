#include "gateway/tls_front.h"

#include <array>
#include <cerrno>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "gateway/deadline.h"
#include "net/openssl.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

namespace heddle::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr std::size_t kPiece = 16384;   ///< What one record of TLS carries at most [bytes].
constexpr int kPiecesPerTurn = 4;       ///< Then others have their turn of the loop.
constexpr int kLocalBuffer = 64 << 10;  ///< Of each end of a local pair [bytes].
constexpr Duration kLinger = 3s;        ///< More than the server takes for it.
constexpr std::string_view kPlainAnswer =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 89\r\n"
    "Connection: close\r\n\r\n"
    R"({"error":{"message":"this port speaks TLS; use https://","type":"invalid_request_error"}})";

}  // namespace

struct TlsFront::State {
  State(asio::io_context& on, TlsFiles with, const Options& how, Taker taker)
      : loop(on), files(std::move(with)), options(how), take(std::move(taker)), look(on) {}

  /// Looks at the files now and then, for as long as there is a front.
  static void watch_files(const std::shared_ptr<State>& state) {
    state->look.expires_after(state->options.files_interval);
    state->look.async_wait([state](const ErrorCode& stopped) {
      if (!stopped && state->take) {
        state->files.reload_if_changed();
        watch_files(state);
      }
    });
  }

  void tell_closed() const {
    if (closed) {
      closed();
    }
  }

  asio::io_context& loop;
  TlsFiles files;
  Options options;
  Taker take;  ///< Null once the front has gone.
  std::function<void()> closed{};
  asio::steady_timer look;
  std::list<Relay*> handshakes{};    ///< Oldest first.
  std::list<Relay*> served{};        ///< The server has the other end.
  std::list<Relay*> leaving{};       ///< The server has closed its end, or never had one.
  std::array<char, kPiece> piece{};  ///< Of whoever has its turn.
};

/// One client: TLS on one side, in the clear on the other. It does what can be done without
/// waiting, then waits for whatever stands in the way. Kept alive by its waits.
class TlsFront::Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(std::shared_ptr<State> state, Socket client)
      : state_(std::move(state)),
        client_(std::move(client)),
        local_(state_->loop),
        session_(SSL_new(state_->files.context().get()), SSL_free),
        deadline_(state_->loop, [this] { close(); }) {
    ErrorCode gone;
    peer_ = client_.remote_endpoint(gone).address().to_string();
    place_ = list_->insert(list_->end(), this);
    BIO* const bio = net::make_socket_bio(client_.native_handle());
    SSL_set_bio(session_.get(), bio, bio);
    SSL_set_accept_state(session_.get());
    deadline_.set(state_->options.handshake_timeout);
  }
  ~Relay() {
    list_->erase(place_);
    state_->tell_closed();
  }

  /// Does what can be done, then waits.
  void turn();
  void close();

 private:
  void shake();
  bool serve();
  void answer_plainly();
  void waste();
  bool inwards();
  bool outwards();
  void send_to_server(std::string_view bytes);
  void send_to_client(std::string_view bytes);
  void begin_stall();
  void end_of_server();
  void say_goodbye();
  int outcome(int result);
  void move_to(std::list<Relay*>& list);
  void wait();
  void wait_for(Socket& socket, Socket::wait_type what, bool& waiting);

  std::shared_ptr<State> state_;
  Socket client_;
  Socket local_;  ///< The server has the other end.
  std::unique_ptr<SSL, decltype(&SSL_free)> session_;
  Deadline deadline_;
  std::string peer_{};
  std::list<Relay*>* list_ = &state_->handshakes;
  std::list<Relay*>::iterator place_{};
  std::string to_server_{};   ///< What did not fit. Nothing is read from the client meanwhile.
  std::string to_client_{};   ///< Likewise, from the server.
  bool plain_ = false;        ///< The client does not speak TLS, and has been told.
  bool begun_ = false;        ///< The handshake has.
  bool shaken_ = false;       ///< It is done.
  bool client_full_ = false;  ///< It must take something first.
  bool stalled_ = false;      ///< It has taken nothing since the deadline was set.
  bool client_ended_ = false;
  bool server_ended_ = false;
  bool said_goodbye_ = false;
  bool awaits_client_ = false;
  bool awaits_client_room_ = false;
  bool awaits_server_ = false;
  bool awaits_server_room_ = false;
};

void TlsFront::Relay::close() {
  ErrorCode ignored;
  client_.close(ignored);
  local_.close(ignored);
  deadline_.clear();
}

void TlsFront::Relay::move_to(std::list<Relay*>& list) {
  list.splice(list.end(), *list_, place_);
  list_ = &list;
}

/// Begins those waits that are needed and not under way.
void TlsFront::Relay::wait() {
  if (!client_.is_open()) {
    return;
  }
  if (!client_ended_ && to_server_.empty()) {
    wait_for(client_, Socket::wait_read, awaits_client_);
  }
  if (client_full_) {
    wait_for(client_, Socket::wait_write, awaits_client_room_);
  }
  if (shaken_ && !server_ended_ && to_client_.empty()) {
    wait_for(local_, Socket::wait_read, awaits_server_);
  }
  if (!to_server_.empty()) {
    wait_for(local_, Socket::wait_write, awaits_server_room_);
  }
}

void TlsFront::Relay::wait_for(Socket& socket, Socket::wait_type what, bool& waiting) {
  if (!std::exchange(waiting, true)) {
    socket.async_wait(what, [self = shared_from_this(), &waiting](const ErrorCode& /*failure*/) {
      waiting = false;
      self->turn();
    });
  }
}

void TlsFront::Relay::turn() {
  client_full_ = false;
  if (!shaken_ && !plain_ && client_.is_open()) {
    shake();
  }
  if (plain_) {
    waste();
  }
  for (int i = 0; i < kPiecesPerTurn && shaken_ && client_.is_open(); ++i) {
    const bool came = inwards();
    const bool went = client_.is_open() && outwards();
    if (!came && !went) {
      break;
    }
  }
  wait();
}

/// What OpenSSL made of its last call: 0: to be waited for; else its SSL_ERROR_.
int TlsFront::Relay::outcome(int result) {
  const int error = SSL_get_error(session_.get(), result);
  client_full_ = client_full_ || error == SSL_ERROR_WANT_WRITE;
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : error;
}

// --- The handshake ---

void TlsFront::Relay::shake() {
  if (!begun_) {
    // Before anything of it is read: OpenSSL would take what is no handshake away.
    char first = 0;
    const ssize_t peeked = recv(client_.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (peeked < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (peeked == 1 && first >= 'A' && first <= 'Z') {
      answer_plainly();
      return;
    }
    begun_ = true;
  }
  ERR_clear_error();
  const int result = SSL_accept(session_.get());
  if (result == 1) {
    shaken_ = serve();
    return;
  }
  if (outcome(result) == 0) {
    return;
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  log::debug("a handshake failed",
             {{"client", peer_}, {"why", reason != nullptr ? reason : "the client has gone"}});
  close();
}

/// Hands the client on to the server. False, and closed, when there are no descriptors left.
bool TlsFront::Relay::serve() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    close();
    return false;
  }
  for (const int end : ends) {
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kLocalBuffer, sizeof kLocalBuffer);
  }
  // Local sockets behind the type of network ones: the server serves both, and its code is of one
  // kind. No address is asked of them.
  ErrorCode ignored;
  local_.assign(tcp::v4(), ends[0], ignored);
  local_.non_blocking(true, ignored);
  Socket server_end(state_->loop);
  server_end.assign(tcp::v4(), ends[1], ignored);
  server_end.non_blocking(true, ignored);
  deadline_.clear();
  move_to(state_->served);
  state_->take(std::move(server_end), peer_);
  return true;
}

/// For who has begun with the name of a method, as no handshake does.
void TlsFront::Relay::answer_plainly() {
  plain_ = true;
  move_to(state_->leaving);
  ErrorCode ignored;
  client_.write_some(asio::buffer(kPlainAnswer), ignored);
  client_.shutdown(Socket::shutdown_send, ignored);
  deadline_.set(kLinger);
}

/// Reads what nobody wants: closing the socket before would take the answer back.
void TlsFront::Relay::waste() {
  ErrorCode failure;
  for (int i = 0; i < kPiecesPerTurn && !failure; ++i) {
    client_.read_some(asio::buffer(state_->piece), failure);
  }
  if (failure && failure != asio::error::would_block) {
    close();
  }
}

// --- From the client to the server ---

/// Passes a piece on. False when there is none, or the one before must go first.
bool TlsFront::Relay::inwards() {
  if (!to_server_.empty()) {
    send_to_server(std::exchange(to_server_, {}));
    return to_server_.empty();
  }
  if (client_ended_) {
    return false;
  }
  ERR_clear_error();
  const int got = SSL_read(session_.get(), state_->piece.data(), static_cast<int>(kPiece));
  if (got > 0) {
    send_to_server({state_->piece.data(), static_cast<std::size_t>(got)});
    return true;
  }
  const int error = outcome(got);
  if (error == SSL_ERROR_ZERO_RETURN) {
    client_ended_ = true;
    ErrorCode ignored;
    local_.shutdown(Socket::shutdown_send, ignored);
    if (said_goodbye_) {
      close();
    }
  } else if (error != 0) {
    close();  // What it said is no TLS, or its connection is broken.
  }
  return false;
}

void TlsFront::Relay::send_to_server(std::string_view bytes) {
  ErrorCode failure;
  const std::size_t sent = local_.write_some(asio::buffer(bytes), failure);
  if (!failure || failure == asio::error::would_block) {
    to_server_.assign(bytes.substr(sent));
    return;
  }
  // The server has closed its end. What it had sent before is still there.
  client_ended_ = true;
  if (said_goodbye_) {
    close();
  }
}

// --- From the server to the client ---

/// As inwards().
bool TlsFront::Relay::outwards() {
  if (!to_client_.empty()) {
    send_to_client(std::exchange(to_client_, {}));
    return to_client_.empty();
  }
  if (server_ended_) {
    if (!said_goodbye_) {
      say_goodbye();
    }
    return false;
  }
  ErrorCode failure;
  const std::size_t got = local_.read_some(asio::buffer(state_->piece), failure);
  if (got > 0) {
    send_to_client({state_->piece.data(), got});
  } else if (failure != asio::error::would_block) {
    end_of_server();
  }
  return got > 0;
}

void TlsFront::Relay::send_to_client(std::string_view bytes) {
  ERR_clear_error();
  const int sent = SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (sent <= 0 && outcome(sent) != 0) {
    close();
    return;
  }
  if (sent > 0) {
    stalled_ = false;
    deadline_.clear();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  if (client_full_) {
    begin_stall();
  }
  to_client_.assign(bytes);
}

/// The client takes nothing: our patience counts from the first time.
void TlsFront::Relay::begin_stall() {
  if (!std::exchange(stalled_, true)) {
    deadline_.set(state_->options.stall_timeout);
  }
}

void TlsFront::Relay::end_of_server() {
  server_ended_ = true;
  move_to(state_->leaving);
  say_goodbye();
}

/// Tells the client that no more comes. Where the server reads on for a while, so do we.
void TlsFront::Relay::say_goodbye() {
  ERR_clear_error();
  const int result = SSL_shutdown(session_.get());
  if (result < 0 && outcome(result) == 0 && client_full_) {
    begin_stall();
    return;
  }
  said_goodbye_ = true;
  ErrorCode ignored;
  client_.shutdown(Socket::shutdown_send, ignored);
  pollfd server{.fd = local_.native_handle(), .events = 0, .revents = 0};
  if (client_ended_ || poll(&server, 1, 0) != 0) {
    close();
  } else {
    deadline_.set(kLinger);
  }
}

// --- The front ---

TlsFront::TlsFront(asio::io_context& loop,
                   TlsFiles files,
                   const Options& options,
                   Taker take,
                   std::function<void()> closed)
    : state_(std::make_shared<State>(loop, std::move(files), options, std::move(take))) {
  state_->closed = std::move(closed);
  State::watch_files(state_);
}

TlsFront::~TlsFront() {
  state_->take = nullptr;
  state_->closed = nullptr;
  state_->look.cancel();
  close();
}

void TlsFront::accept(Socket client) {
  if (state_->handshakes.size() >= state_->options.handshakes_max) {
    state_->handshakes.front()->close();
  }
  std::make_shared<Relay>(state_, std::move(client))->turn();
}

void TlsFront::reload(config::TlsConfig files) {
  state_->files.reload(std::move(files));
}

std::size_t TlsFront::alone() const {
  return state_->handshakes.size() + state_->leaving.size();
}

bool TlsFront::empty() const {
  return alone() == 0 && state_->served.empty();
}

void TlsFront::drain() {
  for (Relay* relay : state_->handshakes) {
    relay->close();
  }
}

void TlsFront::close() {
  drain();
  for (std::list<Relay*>* list : {&state_->served, &state_->leaving}) {
    for (Relay* relay : *list) {
      relay->close();
    }
  }
}

}  // namespace heddle::gateway
