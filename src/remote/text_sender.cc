#include "remote/text_sender.h"

#include <deque>
#include <utility>

#include <boost/asio/post.hpp>

#include "remote/text_files.h"

namespace heddle::remote {

namespace asio = boost::asio;

class TextSender::Impl : public std::enable_shared_from_this<TextSender::Impl> {
 public:
  Impl(asio::any_io_executor loop,
       asio::any_io_executor reader,
       FindText find,
       std::function<void(const HostToGateway&)> send)
      : loop_(std::move(loop)),
        reader_(std::move(reader)),
        find_(std::move(find)),
        send_(std::move(send)) {}

  Result<void> fetch(FetchText wanted) {
    if (wanted_.size() == kFetchesMost) {
      return Error{.code = Code::kCorrupt,
                   .message = "it waits for the files of " + std::to_string(kFetchesMost) +
                              " models already, which is the most"};
    }
    wanted_.push_back(std::move(wanted));
    read_later();
    return {};
  }

  void pause(bool paused) {
    paused_ = paused;
    read_later();
  }

  void stop() { stopped_ = true; }

 private:
  /// Begins to read the next piece, unless one is being read.
  void read_later() {
    if (reading_ || paused_ || stopped_ || wanted_.empty()) {
      return;
    }
    reading_ = true;
    asio::post(loop_, [self = shared_from_this()] { self->read(); });
  }

  void read() {
    if (stopped_) {
      return;
    }
    if (files_.empty()) {
      return find();
    }
    asio::post(reader_,
               [self = shared_from_this(), file = files_.front(), offset = offset_]() mutable {
                 Result<TextPiece> piece = read_piece(file, offset);
                 const asio::any_io_executor loop = self->loop_;
                 asio::post(loop, [self = std::move(self), piece = std::move(piece)]() mutable {
                   self->send(std::move(piece));
                 });
               });
  }

  /// Finds the texts of the first model; making them of a GGUF file takes a while.
  void find() {
    Result<std::filesystem::path> found = find_(wanted_.front().model, wanted_.front().digest);
    if (!found) {
      return fail(found.error());
    }
    asio::post(reader_, [self = shared_from_this(), model = std::move(*found)]() mutable {
      auto texts = store::text_sources(model);
      const asio::any_io_executor loop = self->loop_;
      asio::post(loop, [self = std::move(self), texts = std::move(texts)]() mutable {
        self->take(std::move(texts));
      });
    });
  }

  void take(Result<std::vector<store::TextSource>> texts) {
    if (stopped_) {
      return;
    }
    if (!texts || texts->empty()) {
      return fail(texts ? Error{.code = Code::kNotFound, .message = "the model has no files"}
                        : texts.error());
    }
    files_.assign(texts->begin(), texts->end());
    read();
  }

  void send(Result<TextPiece> piece) {
    if (stopped_) {
      return;
    }
    if (!piece) {
      return fail(piece.error());
    }
    offset_ += piece->bytes.size();
    TextFile file{.model = wanted_.front().model,
                  .digest = wanted_.front().digest,
                  .name = files_.front().name,
                  .bytes = std::move(piece->bytes),
                  .ends = piece->ends};
    if (file.ends) {
      files_.pop_front();
      offset_ = 0;
      file.last = files_.empty();
    }
    answer(std::move(file));
  }

  void fail(const Error& error) {
    files_.clear();
    offset_ = 0;
    answer(TextFailed{
        .model = wanted_.front().model, .digest = wanted_.front().digest, .error = error});
  }

  void answer(const HostToGateway& message) {
    const std::shared_ptr<Impl> self = shared_from_this();  // Who sends may end this object.
    reading_ = false;
    if (files_.empty()) {
      wanted_.pop_front();
    }
    send_(message);
    read_later();
  }

  const asio::any_io_executor loop_;
  const asio::any_io_executor reader_;
  const FindText find_;
  const std::function<void(const HostToGateway&)> send_;
  std::deque<FetchText> wanted_{};
  std::deque<store::TextSource> files_{};  ///< That are left of the first.
  std::uint64_t offset_ = 0;               ///< In the first of those.
  bool reading_ = false;
  bool paused_ = false;
  bool stopped_ = false;
};

TextSender::TextSender(const asio::any_io_executor& loop,
                       const asio::any_io_executor& reader,
                       FindText find,
                       std::function<void(const HostToGateway&)> send)
    : impl_(std::make_shared<Impl>(loop, reader, std::move(find), std::move(send))) {}

TextSender::~TextSender() {
  impl_->stop();
}

Result<void> TextSender::fetch(FetchText wanted) {
  return impl_->fetch(std::move(wanted));
}

void TextSender::pause(bool paused) {
  impl_->pause(paused);
}

}  // namespace heddle::remote
