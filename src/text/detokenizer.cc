#include "text/detokenizer.h"

#include <cstddef>
#include <utility>

#include "text/utf8_stream.h"

namespace heddle::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, ShowSpecial special)
    : tokenizer_(std::move(tokenizer)),
      special_(special),
      strip_left_(tokenizer_->pieces().rules().strip_count) {}

std::string Detokenizer::push(TokenId id) {
  std::string out;
  const Piece piece = tokenizer_->pieces().at(id);
  if (piece.kind == PieceKind::kNone || (piece.special && special_ == ShowSpecial::kNo)) {
    return out;
  }
  const std::string_view bytes = std::exchange(started_, true) ? piece.text : piece.first;
  switch (piece.kind) {
    case PieceKind::kFallbackByte:
      byte_run_ += bytes;
      return out;
    case PieceKind::kFragment:
      fragments_.push(bytes, out);
      break;
    default:
      end_byte_run(out);
      out += bytes;
  }
  strip_start(out);
  return out;
}

std::string Detokenizer::flush() {
  std::string out;
  end_byte_run(out);
  fragments_.flush(out);
  strip_start(out);
  started_ = false;
  strip_left_ = tokenizer_->pieces().rules().strip_count;
  return out;
}

void Detokenizer::end_byte_run(std::string& out) {
  if (byte_run_.empty()) {
    return;
  }
  std::string text;
  Utf8Stream utf8;
  utf8.push(byte_run_, text);
  utf8.flush(text);
  if (text == byte_run_) {
    out += text;
  } else {
    for (std::size_t i = 0; i < byte_run_.size(); ++i) {
      out += kReplacement;
    }
  }
  byte_run_.clear();
}

void Detokenizer::strip_start(std::string& out) {
  const std::string& strip = tokenizer_->pieces().rules().strip;
  while (strip_left_ > 0 && !out.empty()) {
    if (!out.starts_with(strip)) {
      strip_left_ = 0;
      return;
    }
    out.erase(0, strip.size());
    --strip_left_;
  }
}

}  // namespace heddle::text
