#include "remote/load_pieces.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/wire.h"
#include "remote/remote_fields.h"

namespace heddle::remote {
namespace {

using std::chrono::minutes;

constexpr policy::Load kLoad{.mean = 0.5, .peak = 2};

history::LoadBook book_of(int models, std::int64_t windows, std::size_t name_bytes = 8) {
  history::LoadBook book;
  book.begin(minutes(5), history::LoadBook::kWindowsMost);
  for (int i = 0; i < models; ++i) {
    std::string name = std::to_string(1000 + i);
    name.resize(name_bytes, 'x');
    for (std::int64_t window = 0; window < windows; ++window) {
      book.put(name, window, kLoad);
    }
  }
  return book;
}

/// All of a book, as it comes over a link.
std::vector<Loads> pieces_of(const history::LoadBook& book,
                             const history::LoadBook* known = nullptr) {
  std::vector<Loads> all;
  LoadPlace from;
  do {
    const std::string bytes = encode(FromHost(piece_from(book, from, known)));
    EXPECT_LE(bytes.size(), kLoadsBytesMost);
    const Result<FromHost> piece = decode_from_host(bytes);
    EXPECT_TRUE(piece) << (piece ? "" : piece.error().message);
    all.push_back(std::get<Loads>(*piece));
    from = place_after(all.back());
  } while (!all.back().last);
  return all;
}

void expect_whole(const history::LoadBook& book) {
  history::LoadBook copy;
  copy.begin(book.length(), book.keep());
  for (const Loads& piece : pieces_of(book)) {
    put(piece, copy);
  }
  EXPECT_EQ(copy.size(), book.size());
  EXPECT_EQ(copy.digest(), book.digest());
}

TEST(LoadPieces, BringAWholeBook) {
  EXPECT_EQ(pieces_of(book_of(0, 0)).size(), 1U) << "one says that there is nothing";
  expect_whole(book_of(1, 1));
  expect_whole(book_of(1, 10'000));
  expect_whole(book_of(40, 300));
  expect_whole(book_of(3000, 1));
  expect_whole(book_of(300, 2, history::LoadBook::kNameMost));
}

TEST(LoadPieces, LeaveOutWhatIsKnown) {
  const history::LoadBook book = book_of(3, 2000);
  history::LoadBook known = book_of(2, 2000);
  EXPECT_TRUE(pieces_of(book, &book).at(0).models.empty());
  EXPECT_EQ(pieces_of(book, &known).size(), 1U) << "the third model";
  known.put("1001xxxx", 7, {.mean = 9, .peak = 9});
  const std::vector<Loads> lacking = pieces_of(book, &known);
  ASSERT_EQ(lacking.at(0).models.size(), 2U);
  EXPECT_EQ(lacking[0].models[0].windows.size(), 1U);
  EXPECT_EQ(lacking[0].models[0].windows[0].window, 7);
}

TEST(LoadPieces, AnswersAreToWhatWasAsked) {
  const TellLoads asked{.length = minutes(5), .model = "chat", .window = 7};
  const auto answer = [](const std::string& model, std::int64_t window) {
    return Loads{.length = minutes(5), .models = {{model, {{.window = window}}}}};
  };
  EXPECT_TRUE(check_answer(answer("chat", 7), asked));
  EXPECT_TRUE(check_answer(answer("code", 0), asked));
  EXPECT_TRUE(check_answer({.length = minutes(5), .last = true}, asked));
  EXPECT_TRUE(check_answer({.length = minutes(5), .same = true}, asked));
  EXPECT_EQ(check_answer(answer("chat", 6), asked).error().message,
            "loads from window 6 of model \"chat\" on, and was asked for those from window 7 of "
            "model \"chat\" on");
  EXPECT_FALSE(check_answer(answer("a", 9), asked));
  EXPECT_FALSE(check_answer({.length = minutes(5)}, asked)) << "it would never end";
  EXPECT_FALSE(check_answer({.length = minutes(1), .last = true}, asked));
}

/// Why it is refused, both ways; empty: it is not.
std::string refusal(const Loads& loads) {
  const Result<ToHost> there = decode_to_host(wire::encode(ToHost(loads)));
  const Result<FromHost> back = decode_from_host(wire::encode(FromHost(loads)));
  EXPECT_EQ(there.has_value(), back.has_value());
  return there ? "" : there.error().message;
}
Loads loads_of(std::vector<PastLoad> models) {
  return {.length = minutes(5), .keep = 10, .models = std::move(models)};
}

TEST(LoadPieces, WhatCannotBeIsRefused) {
  EXPECT_EQ(refusal(loads_of({{"chat", {{5, 1, 1}, {6, 0, 0}}}, {"code", {{5, 1, 1}}}})), "");
  const float nan = std::nanf("");
  const float infinite = std::numeric_limits<float>::infinity();
  for (const auto& [mean, peak] :
       {std::pair{nan, 1.0F}, {1.0F, nan}, {-1.0F, 1.0F}, {1.0F, infinite}, {2e9F, 3e9F}}) {
    EXPECT_NE(refusal(loads_of({{"chat", {{5, mean, peak}}}})).find("loads from 0 to 1e9"),
              std::string::npos)
        << mean << " " << peak;
  }
  EXPECT_NE(refusal(loads_of({{"chat", {{-1, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"chat", {{history::LoadBook::kNumberMost + 1, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"", {{5, 1, 1}}}})).find("a name of 1 to 1024 bytes"),
            std::string::npos);
  EXPECT_NE(refusal(loads_of({{std::string(1025, 'x'), {{5, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"chat", {}}})), "") << "a model of no window";
  EXPECT_NE(refusal(loads_of({{"chat", {{6, 1, 1}, {5, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"chat", {{5, 1, 1}, {5, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"chat", {{5, 1, 1}}}, {"chat", {{6, 1, 1}}}})), "");
  EXPECT_NE(refusal(loads_of({{"code", {{5, 1, 1}}}, {"chat", {{5, 1, 1}}}})), "");
  EXPECT_NE(refusal({.keep = 10}), "") << "windows of no length";
  Loads absurd = loads_of({});
  absurd.keep = -1;
  EXPECT_NE(refusal(absurd), "");
  PastLoad many{.model = "chat"};
  for (std::size_t i = 0; i <= kLoadsWindowsMost; ++i) {
    many.windows.push_back({static_cast<std::int64_t>(i), 1, 1});
  }
  EXPECT_NE(refusal(loads_of({many})).find("2048 windows together"), std::string::npos);
  const TellLoads tell{.length = minutes(5), .model = std::string(1025, 'x')};
  EXPECT_FALSE(decode_to_host(wire::encode(ToHost(tell))));
  EXPECT_FALSE(decode_to_host(wire::encode(ToHost(TellLoads{}))));
  EXPECT_FALSE(decode_from_host(wire::encode(ToHost(TellLoads{.length = minutes(5)}))))
      << "a host does not ask";
}

}  // namespace
}  // namespace heddle::remote
