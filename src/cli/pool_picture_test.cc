#include "cli/pool_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

spec::Json pool_of(const char* text) {
  const Result<spec::Json> json = spec::parse_json(text, "pool");
  EXPECT_TRUE(json);
  return json ? *json : spec::Json();
}

const char* const kDevice = R"({
  "pages_total": 100, "pages_free": 30,
  "pages": {"weights_active": {"held": 40}, "kv_own": {"held": 10}, "kv_cached": {"held": 10},
            "overhead": {"held": 10}},
  "models": [{"model": "adder", "weights_pages": 20, "kv_pages": 10},
             {"model": "morse", "weights_pages": 20, "kv_pages": 0}],
  "guests": []})";

TEST(PoolPicture, PagesAreWhoseTheyAre) {
  const ModelMarks marks = model_marks({"adder", "morse"});
  EXPECT_EQ(draw_pool(pool_of(kDevice), marks, 20, false), "AAAAaaBBBB==##......");
  EXPECT_EQ(draw_pool(pool_of(kDevice), marks, 10, false), "AAaBB=#...");
}

TEST(PoolPicture, IsAsLongAsItIsWide) {
  const ModelMarks marks = model_marks({"adder", "morse"});
  for (std::size_t columns = 0; columns < 60; ++columns) {
    EXPECT_EQ(draw_pool(pool_of(kDevice), marks, columns, false).size(), columns);
  }
}

TEST(PoolPicture, ModelsStandOnTheirColour) {
  const ModelMarks marks = model_marks({"adder", "morse"});
  EXPECT_EQ(marks.at("morse").letter, 'b');
  EXPECT_NE(marks.at("adder").colour, marks.at("morse").colour);
  EXPECT_EQ(draw_pool(pool_of(kDevice), marks, 5, true),
            "\x1b[30;48;5;110mA\x1b[0m\x1b[30;48;5;110ma\x1b[0m\x1b[30;48;5;173mB\x1b[0m#.");
}

// What another device keeps here is KV of a model that is not here.
TEST(PoolPicture, GuestsAreKv) {
  const spec::Json pool = pool_of(R"({"pages_total": 4, "pages_free": 3,
      "pages": {"lent": {"held": 1}}, "guests": [{"model": "far", "pages": 1}]})");
  EXPECT_EQ(draw_pool(pool, model_marks({"far"}), 4, false), "a...");
}

// A model that the server does not list, a load whose pages nobody holds yet, an empty pool, a
// pool of another version of the server.
TEST(PoolPicture, DrawsWhatIsOdd) {
  EXPECT_EQ(draw_pool(pool_of(R"({"pages_total": 4, "pages_free": 2,
      "models": [{"model": "new", "weights_pages": 2}]})"),
                      {},
                      4,
                      true),
            "??..");
  EXPECT_EQ(draw_pool(pool_of(R"({"pages_total": 2, "pages_free": 2,
      "models": [{"model": "new", "weights_pages": 2}]})"),
                      model_marks({"new"}),
                      4,
                      false),
            "AAAA");
  EXPECT_EQ(draw_pool(pool_of(R"({"pages_total": 0, "pages_free": 0})"), {}, 3, false), "...");
  EXPECT_EQ(draw_pool(pool_of(R"([1])"), {}, 3, false), "...");
  EXPECT_TRUE(pool_parts(pool_of(R"({"models": 3, "pages": "x"})")).empty());
}

TEST(PoolPicture, LettersBeginAgain) {
  std::vector<std::string> models;
  for (int i = 0; i < 30; ++i) {
    models.push_back("m" + std::to_string(i));
  }
  EXPECT_EQ(model_marks(models).at("m26").letter, 'a');
}

}  // namespace
}  // namespace heddle::cli
