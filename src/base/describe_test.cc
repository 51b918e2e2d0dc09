#include "base/describe.h"

#include <gtest/gtest.h>

#include "base/ids.h"

namespace heddle {
namespace {

enum class Colour : std::uint8_t { kRed, kGreen, kBlue };

struct Point {
  std::int32_t x = 0;
  float y = 0.5F;
};
void fields(Fields& v, Point& p) {
  v.type("Point");
  v(1, "x", p.x, kCount);
  v(4, "y", p.y);
}

struct Circle {
  Point centre{};
  std::optional<Colour> colour{};
};
void fields(Fields& v, Circle& c) {
  v.message(1, "Circle");
  v(1, "centre", c.centre);
  v(2, "colour", c.colour);
}

struct Line {
  std::vector<Point> points{};
};
void fields(Fields& v, Line& l) {
  v.message(2, "Line");
  v(1, "points", l.points);
}

struct Nothing {};
void fields(Fields& v, Nothing& /*n*/) {
  v.message(7, "Nothing");
}

using Shape = std::variant<Circle, Line>;
using Drawn = std::variant<Nothing, Shape>;

TEST(Enumerators, AreCountedAndNamed) {
  EXPECT_EQ(enumerator_count<Colour>(), 3U);
  EXPECT_EQ(kEnumerators<Colour>[2], "kBlue");
  EXPECT_EQ(enumerator_name<Colour::kGreen>(), "kGreen");
  EXPECT_EQ(enumerator_name<static_cast<Colour>(3)>(), "");
  EXPECT_EQ(type_name<Colour>(), "Colour");
}

TEST(Describe, KnowsTheFieldsOfAStructByNumber) {
  const Type& type = type_of<Point>();
  EXPECT_EQ(type.kind, Type::Kind::kStruct);
  EXPECT_EQ(type.name, "Point");
  ASSERT_EQ(type.fields.size(), 2U);
  EXPECT_EQ(type.find(4), &type.fields[1]);
  EXPECT_EQ(type.fields[1].offset, offsetof(Point, y));
  EXPECT_EQ(type.fields[0].range.least, 0);
  EXPECT_EQ(type.find(0), nullptr);
  EXPECT_EQ(type.find(2), nullptr);
  EXPECT_EQ(type.find(5), nullptr);
  EXPECT_EQ(static_cast<const Point*>(type.initial)->y, 0.5F);
}

TEST(Describe, TellsKindsOfNumbersApart) {
  EXPECT_EQ(type_of<ModelId>().kind, Type::Kind::kUnsigned);
  EXPECT_EQ(type_of<Duration>().kind, Type::Kind::kSigned);
  EXPECT_EQ(type_of<Instant>().kind, Type::Kind::kSigned);
  EXPECT_EQ(type_of<double>().kind, Type::Kind::kFloat);
  EXPECT_EQ(type_of<bool>().kind, Type::Kind::kBool);
  EXPECT_EQ(type_of<Colour>().values.size(), 3U);
}

TEST(Describe, ReachesWhatOptionalsListsAndMapsHold) {
  std::optional<Point> optional;
  const Type& type = type_of<std::optional<Point>>();
  EXPECT_EQ(type.peek(&optional), nullptr);
  static_cast<Point*>(type.emplace(&optional))->x = 3;
  EXPECT_EQ(optional->x, 3);
  EXPECT_EQ(type.peek(&optional), &*optional);

  std::vector<Point> list;
  const ListAccess& access = type_of<std::vector<Point>>().list;
  EXPECT_EQ(access.resize(&list, 2), list.data());
  EXPECT_EQ(access.size(&list), 2U);
  EXPECT_EQ(access.fixed, 0U);
  EXPECT_EQ((type_of<std::array<Point, 5>>().list.fixed), 5U);

  std::map<std::int32_t, Point> map;
  type_of<std::map<std::int32_t, Point>>().insert(&map, [](void* entries) {
    *static_cast<std::vector<std::pair<std::int32_t, Point>>*>(entries) = {{4, {.x = 1}}};
  });
  EXPECT_EQ(map.at(4).x, 1);
}

TEST(Describe, CountsAlternativesOfVariantsWithinVariants) {
  const Type& type = type_of<Drawn>();
  ASSERT_EQ(type.alternatives.size(), 3U);
  EXPECT_EQ(type.alternatives[2]->name, "Line");
  Drawn drawn;
  static_cast<Line*>(type.choose(&drawn, 2))->points.resize(1);
  EXPECT_EQ(std::get<Line>(std::get<Shape>(drawn)).points.size(), 1U);
  EXPECT_EQ(type.chosen(&drawn).alternative, 2U);
  EXPECT_EQ(type.chosen(&drawn).value, &std::get<Line>(std::get<Shape>(drawn)));
  EXPECT_EQ(type.choose(&drawn, 0), &std::get<Nothing>(drawn));
}

struct Twice {
  int a = 0;
  int b = 0;
};
void fields(Fields& v, Twice& t) {
  v.type("Twice");
  v(1, "a", t.a);
  v(1, "b", t.b);
}
struct Full {
  std::string text = "text";
};
void fields(Fields& v, Full& f) {
  v.type("Full");
  v(1, "text", f.text);
}
struct Inner {
  std::string text{};
};
void fields(Fields& v, Inner& i) {
  v.type("Inner");
  v(1, "text", i.text);
}
struct Outer {
  Inner inner{.text = "text"};
};
void fields(Fields& v, Outer& o) {
  v.type("Outer");
  v(1, "inner", o.inner);
}
struct Same {};
void fields(Fields& v, Same& /*s*/) {
  v.message(7, "Same");
}

TEST(DescribeDeathTest, RefusesDescriptionsThatCannotWork) {
  EXPECT_DEATH((void)type_of<Twice>(), "Twice.b: number 1 is there twice");
  EXPECT_DEATH((void)type_of<Full>(), "Full.text: what it is by default must be empty");
  EXPECT_DEATH((void)type_of<Outer>(), "Outer.inner: what it is by default must be empty");
  EXPECT_DEATH((void)(type_of<std::variant<Nothing, Same>>()), "Same: number 7 is Nothing's, too");
  EXPECT_DEATH((void)(type_of<std::variant<Nothing, Point>>()), "Point: an alternative without");
  EXPECT_DEATH((void)(type_of<std::vector<std::vector<int>>>()), "a list of optionals or lists");
}

}  // namespace
}  // namespace heddle
