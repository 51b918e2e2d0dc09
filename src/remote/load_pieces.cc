#include "remote/load_pieces.h"

#include <algorithm>
#include <utility>

namespace heddle::remote {
namespace {

/// Of a window on the wire, and of what is around the windows of a model.
constexpr std::size_t kWindowBytes = 20;
constexpr std::size_t kModelBytes = 16;

/// A piece, and how full it is.
class Piece {
 public:
  explicit Piece(const history::LoadBook& book) {
    piece_.length = book.length();
    piece_.keep = book.keep();
  }

  /// Whether there was room for it.
  bool add(const std::string& model, const history::WindowLoad& window) {
    const bool begins = piece_.models.empty() || piece_.models.back().model != model;
    const std::size_t more = kWindowBytes + (begins ? kModelBytes + model.size() : 0);
    if (windows_ == kLoadsWindowsMost || bytes_ + more > kLoadsBytesMost ||
        (begins && piece_.models.size() == kLoadsModelsMost)) {
      return false;
    }
    bytes_ += more;
    ++windows_;
    if (begins) {
      piece_.models.push_back({.model = model});
    }
    piece_.models.back().windows.push_back({.window = window.window,
                                            .mean = static_cast<float>(window.load.mean),
                                            .peak = static_cast<float>(window.load.peak)});
    return true;
  }

  Loads take(bool last) {
    piece_.last = last;
    return std::move(piece_);
  }

 private:
  Loads piece_{};
  std::size_t windows_ = 0;
  std::size_t bytes_ = 0;
};

/// Goes through the windows of one model that are not known, beside what is looked for.
class Known {
 public:
  Known(const history::LoadBook* book, const std::string& model) {
    if (book != nullptr) {
      const auto found = book->models().find(model);
      windows_ = found == book->models().end() ? nullptr : &found->second.windows;
    }
  }

  /// Windows are asked about in ascending order.
  bool has(const history::WindowLoad& window) {
    if (windows_ == nullptr) {
      return false;
    }
    while (next_ < windows_->size() && (*windows_)[next_].window < window.window) {
      ++next_;
    }
    return next_ < windows_->size() && (*windows_)[next_] == window;
  }

 private:
  const std::deque<history::WindowLoad>* windows_ = nullptr;
  std::size_t next_ = 0;
};

}  // namespace

Loads piece_from(const history::LoadBook& book,
                 const LoadPlace& from,
                 const history::LoadBook* known) {
  Piece piece(book);
  const auto& models = book.models();
  for (auto model = models.lower_bound(from.model); model != models.end(); ++model) {
    const auto& windows = model->second.windows;
    const std::int64_t first = model->first == from.model ? from.window : 0;
    Known there(known, model->first);
    for (auto window = std::ranges::lower_bound(windows, first, {}, &history::WindowLoad::window);
         window != windows.end();
         ++window) {
      if (!there.has(*window) && !piece.add(model->first, *window)) {
        return piece.take(/*last=*/false);
      }
    }
  }
  return piece.take(/*last=*/true);
}

LoadPlace place_after(const Loads& piece) {
  if (piece.models.empty()) {
    return {};
  }
  const PastLoad& last = piece.models.back();
  return {.model = last.model, .window = last.windows.back().window + 1};
}

void put(const Loads& piece, history::LoadBook& book) {
  for (const PastLoad& past : piece.models) {
    for (const PastWindow& window : past.windows) {
      book.put(
          past.model,
          window.window,
          {.mean = static_cast<double>(window.mean), .peak = static_cast<double>(window.peak)});
    }
  }
}

Result<void> check_answer(const Loads& answer, const TellLoads& asked) {
  const auto wrong = [](std::string message) {
    return Error{.code = Code::kCorrupt, .message = std::move(message)};
  };
  if (answer.length != asked.length) {
    return wrong("loads of windows of " + std::to_string(answer.length.count()) +
                 " ns, and was asked for windows of " + std::to_string(asked.length.count()));
  }
  if (answer.models.empty()) {
    return answer.last || answer.same ? Result<void>()
                                      : wrong("loads of no model, and says that others follow");
  }
  const PastLoad& first = answer.models.front();
  if (first.model < asked.model ||
      (first.model == asked.model && first.windows.front().window < asked.window)) {
    return wrong("loads from window " + std::to_string(first.windows.front().window) +
                 " of model \"" + first.model + "\" on, and was asked for those from window " +
                 std::to_string(asked.window) + " of model \"" + asked.model + "\" on");
  }
  return {};
}

}  // namespace heddle::remote
