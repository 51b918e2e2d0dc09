#include "base/json_line.h"

#include <gtest/gtest.h>

#include "base/test_fill.h"

namespace heddle {
namespace {

enum class Mode : std::uint8_t { kFast, kSlow };

struct Part {
  double weight = 0;
  Mode mode = Mode::kFast;
};
void fields(Fields& v, Part& p) {
  v.type("Part");
  v(1, "weight", p.weight);
  v(2, "mode", p.mode);
}

struct Whole {
  std::string name{};
  std::optional<Duration> took{};
  std::vector<Part> parts{};
  std::array<std::uint32_t, 2> counts{};
  std::map<std::uint64_t, std::vector<std::int32_t>> lists{};
  std::pair<bool, float> pair{};
};
void fields(Fields& v, Whole& w) {
  v.message(1, "Whole");
  v(1, "name", w.name);
  v(2, "took", w.took);
  v(3, "parts", w.parts);
  v(4, "counts", w.counts);
  v(5, "lists", w.lists);
  v(6, "pair", w.pair);
}
struct Empty {};
void fields(Fields& v, Empty& /*e*/) {
  v.message(2, "Empty");
}
using Said = std::variant<Empty, Whole>;

std::string line_of(const Said& said) {
  std::string line;
  write_json_line(type_of<Said>(), &said, line);
  return line;
}

std::string error_of(std::string_view text) {
  Said said;
  JsonLineReader reader(text);
  reader.read(type_of<Said>(), &said);
  const auto error = reader.finish();
  return error ? error->message : "";
}

TEST(JsonLine, HoldsEveryFieldByName) {
  EXPECT_EQ(line_of(Whole{.name = "a\n",
                          .parts = {{.weight = 0.1}, {.mode = Mode::kSlow}},
                          .counts = {1, 2},
                          .lists = {{7, {-1}}},
                          .pair = {true, 0.1F}}),
            R"({"Whole":{"name":"a\u000a","took":null,"parts":[{"weight":0.1,"mode":0},)"
            R"({"weight":0,"mode":1}],"counts":[1,2],"lists":[[7,[-1]]],"pair":[true,0.1]}})");
  EXPECT_EQ(line_of(Empty{}), R"({"Empty":{}})");
}

TEST(JsonLine, IsReadBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Said said;
    test::Filler(seed).fill(type_of<Said>(), &said);
    const std::string line = line_of(said);
    Said again;
    JsonLineReader reader(line);
    reader.read(type_of<Said>(), &again);
    ASSERT_FALSE(reader.finish());
    EXPECT_EQ(line_of(again), line);
  }
}

TEST(JsonLine, SaysWhatIsWrongInWhichColumn) {
  EXPECT_EQ(error_of(R"({"Empty":{}})"), "");
  EXPECT_EQ(error_of(R"({"Empty":{}}x)"), "event log, column 13: expected the end, found 'x'");
  EXPECT_EQ(error_of(R"({"Other":{}})"),
            "event log, column 3: expected the name of an event or a command, found 'Other\":{}}'");
  const std::string line = line_of(Whole{});
  EXPECT_NE(error_of(std::string(line).insert(line.find("[0,0]") + 4, ",0")), "") << "an array";
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_NE(error_of(std::string_view(line).substr(0, i)), "");
  }
}

}  // namespace
}  // namespace heddle
