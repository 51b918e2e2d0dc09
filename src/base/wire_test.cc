#include "base/wire.h"

#include <gtest/gtest.h>

#include "base/ids.h"
#include "base/rng.h"
#include "base/test_fill.h"

namespace heddle {
namespace {

enum class Mode : std::uint8_t { kFast, kSlow, kOff };

struct Part {
  std::uint32_t id = 0;
  std::string name{};
};
void fields(Fields& v, Part& p) {
  v.type("Part");
  v(1, "id", p.id);
  v(2, "name", p.name);
  v.require(
      p, "a name with a number", [](const Part& part) { return part.name.empty() || part.id > 0; });
}

struct Note {
  std::uint64_t number = 0;
  std::string text{};
  std::int32_t level = -1;  // Not 0 by default, so that 0 is something to say.
  float share = 1.0F;
  std::vector<std::int32_t> tokens{};
  std::vector<Part> parts{};
  std::optional<std::int64_t> limit{};
  std::optional<Part> part{};
  Part own{.id = 5};  // Not as a Part is by default.
  std::array<Part, 3> three{};
  std::array<std::uint64_t, 2> counts{};
  std::vector<Mode> modes{Mode::kSlow};
  std::map<std::uint32_t, std::vector<Part>> map{};
  bool flag = true;
  double size = 0;
  std::vector<float> shares{};
  Duration wait{};
};
void fields(Fields& v, Note& n) {
  v.message(3, "Note");
  v(1, "number", n.number);
  v(2, "text", n.text);
  v(3, "level", n.level, {.least = -1, .most = 99});
  v(4, "share", n.share);
  v(5, "tokens", n.tokens, kCount);
  v(6, "parts", n.parts);
  v(7, "limit", n.limit);
  v(8, "part", n.part);
  v(9, "own", n.own);
  v(10, "three", n.three);
  v(11, "counts", n.counts);
  v(12, "modes", n.modes);
  v(13, "map", n.map);
  v(14, "flag", n.flag);
  v(15, "size", n.size);
  v(16, "shares", n.shares);
  v(17, "wait", n.wait);
}

struct Ping {};
void fields(Fields& v, Ping& /*p*/) {
  v.message(1, "Ping");
}
using Said = std::variant<Ping, std::variant<Note>>;

struct Letter {
  std::uint64_t from = 0;
  Said body{};
};
void fields(Fields& v, Letter& l) {
  v.type("Letter");
  v(1, "from", l.from);
  v(2, "body", l.body);
}

std::string bytes_of(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) {
    text += static_cast<char>(byte);
  }
  return text;
}

template <class T>
std::string error_of(std::string_view bytes) {
  const Result<T> read = wire::decode<T>(bytes);
  if (read) {
    return "";
  }
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  return read.error().message;
}

/// All of it 0 or empty by default.
struct Plain {
  std::uint64_t number = 0;
  std::string text{};
  std::int32_t level = 0;
  float share = 0;
  std::vector<std::int32_t> tokens{};
  std::vector<Part> parts{};
  double size = 0;
};
void fields(Fields& v, Plain& p) {
  v.message(3, "Plain");
  v(1, "number", p.number);
  v(2, "text", p.text);
  v(3, "level", p.level);
  v(4, "share", p.share);
  v(5, "tokens", p.tokens);
  v(6, "parts", p.parts);
  v(15, "size", p.size);
}

TEST(Wire, LooksLikeProtocolBuffers) {
  EXPECT_EQ(wire::encode(Plain{.number = 300}), bytes_of({0x08, 0xac, 0x02}));
  EXPECT_EQ(wire::encode(Plain{.text = "testing"}), "\x12\x07testing");
  EXPECT_EQ(wire::encode(Plain{.level = -2}), bytes_of({0x18, 0x03}));
  EXPECT_EQ(wire::encode(Plain{.share = 1.0F}), bytes_of({0x25, 0, 0, 0x80, 0x3f}));
  EXPECT_EQ(wire::encode(Plain{.tokens = {1, 0, 64}}), bytes_of({0x2a, 4, 2, 0, 0x80, 1}));
  EXPECT_EQ(wire::encode(Plain{.parts = {{}, {.id = 7}}}), bytes_of({0x32, 0, 0x32, 2, 0x08, 7}));
  EXPECT_EQ(wire::encode(Plain{.size = 1}), bytes_of({0x79, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}));
  EXPECT_EQ(wire::encode(std::variant<Ping, Plain>(Plain{.number = 1})),
            bytes_of({0x1a, 2, 0x08, 1}));
}

TEST(Wire, WhatIsZeroByDefaultIsNotThereUnlessItSaysSomething) {
  EXPECT_EQ(wire::encode(Plain{}), "");
  const auto read = wire::decode<Note>("");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->level, -1);
  EXPECT_EQ(read->share, 1.0F);
  EXPECT_EQ(read->own.id, 5U);
  EXPECT_EQ(read->modes, std::vector{Mode::kSlow});
  EXPECT_TRUE(read->flag);
}

/// As Note, of a version that has other defaults.
struct OtherNote {
  std::int32_t level = 4;
  float share = 0.5F;
};
void fields(Fields& v, OtherNote& n) {
  v.message(3, "Note");
  v(3, "level", n.level);
  v(4, "share", n.share);
}

TEST(Wire, WhatIsNotZeroByDefaultIsAlwaysThereSoThatADefaultMayChange) {
  const auto read = wire::decode<OtherNote>(wire::encode(Note{}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->level, -1);
  EXPECT_EQ(read->share, 1.0F);
}

TEST(Wire, WhatIsZeroThoughNotByDefaultIsThere) {
  const Note sent{
      .level = 0, .limit = 0, .part = Part{}, .own = {.id = 0}, .modes = {}, .flag = false};
  const auto read = wire::decode<Note>(wire::encode(sent));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->level, 0);
  EXPECT_EQ(read->limit, 0);
  EXPECT_TRUE(read->part.has_value());
  EXPECT_EQ(read->own.id, 0U);
  EXPECT_TRUE(read->modes.empty());
  EXPECT_FALSE(read->flag);
}

TEST(Wire, IsReadBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Letter sent;
    test::Filler(seed).fill(type_of<Letter>(), &sent);
    const std::string bytes = wire::encode(sent);
    const auto read = wire::decode<Letter>(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(wire::encode(*read), bytes);
    EXPECT_EQ(read->from, sent.from);
  }
}

TEST(Wire, KeepsLongThingsInLongThings) {
  Note note;
  note.parts.resize(1000, {.id = 1, .name = std::string(300, 'n')});
  note.map[4] = note.parts;
  const auto read = wire::decode<Letter>(wire::encode(Letter{.body = note}));
  ASSERT_TRUE(read) << read.error().message;
  const Note& got = std::get<Note>(std::get<std::variant<Note>>(read->body));
  EXPECT_EQ(got.parts.size(), 1000U);
  EXPECT_EQ(got.map.at(4)[999].name, std::string(300, 'n'));
}

// ---- Neighbouring versions ----

/// What the next version makes of Part.
struct NewerPart {
  std::uint32_t id = 0;
  std::string name{};
  std::vector<Part> parts{};
  double weight = 2.5;
  std::optional<std::uint64_t> owner{};
  float share = 0;
  Mode mode = Mode::kSlow;
};
void fields(Fields& v, NewerPart& p) {
  v.type("Part");
  v(1, "id", p.id);
  v(2, "name", p.name);
  v(3, "parts", p.parts);
  v(4, "weight", p.weight);
  v(200, "owner", p.owner);
  v(6, "share", p.share);
  v(7, "mode", p.mode);
}

TEST(Wire, AFieldThatANewerVersionHasIsPassedOver) {
  const NewerPart sent{.id = 3,
                       .name = "n",
                       .parts = {{.id = 1}},
                       .weight = 1.5,
                       .owner = 9,
                       .share = 1,
                       .mode = Mode::kOff};
  const auto read = wire::decode<Part>(wire::encode(sent));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, 3U);
  EXPECT_EQ(read->name, "n");
}

TEST(Wire, AFieldThatAnOlderVersionLacksIsAsByDefault) {
  const auto read = wire::decode<NewerPart>(wire::encode(Part{.id = 3, .name = "n"}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, 3U);
  EXPECT_EQ(read->weight, 2.5);
  EXPECT_EQ(read->owner, std::nullopt);
  EXPECT_EQ(read->mode, Mode::kSlow);
}

TEST(Wire, FieldsMayComeInAnyOrder) {
  const auto read = wire::decode<Part>(bytes_of({0x12, 1, 'n', 0x08, 7}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, 7U);
}

TEST(Wire, AnEnumeratorOrAMessageOfANewerVersionIsRefused) {
  EXPECT_EQ(error_of<Note>(bytes_of({0x62, 2, 0, 3})),
            "message Note.modes: 3; the greatest known is 2");
  EXPECT_EQ(error_of<Said>(bytes_of({0x72, 0})), "message: message 14 is not known");
  EXPECT_EQ(error_of<Letter>(bytes_of({0x12, 2, 0x72, 0})),
            "message Letter.body: message 14 is not known");
}

// ---- Refusals ----

TEST(Wire, WhatSaysNothingIsRefused) {
  EXPECT_EQ(error_of<Said>(""), "message: it says nothing");
  EXPECT_EQ(error_of<Letter>(""), "message Letter.body: it says nothing");
  EXPECT_EQ(error_of<Letter>(bytes_of({0x12, 0})), "message Letter.body: it says nothing");
  EXPECT_EQ(error_of<Said>(bytes_of({0x0a, 0, 0x0a, 0})), "message: more than one message");
}

TEST(Wire, WhatIsOutOfItsRangeIsRefused) {
  EXPECT_EQ(error_of<Note>(wire::encode(Note{.level = -2})),
            "message Note.level: -2; want -1 to 99");
  EXPECT_EQ(error_of<Note>(wire::encode(Note{.level = 100})),
            "message Note.level: 100; want -1 to 99");
  EXPECT_EQ(error_of<Note>(wire::encode(Note{.tokens = {1, -1}})),
            "message Note.tokens: -1; want 0 to 2147483647");
  EXPECT_EQ(error_of<Note>(bytes_of({0x70, 2})), "message Note.flag: 2; the greatest known is 1");
  EXPECT_EQ(error_of<Part>(bytes_of({0x08, 0xff, 0xff, 0xff, 0xff, 0x7f})),
            "message Part.id: 34359738367; the greatest known is 4294967295");
  EXPECT_EQ(error_of<Note>(wire::encode(Note{.parts = {{}, {.name = "x"}}})),
            "message Note.parts[1]: want a name with a number");
}

TEST(Wire, MalformedBytesAreRefused) {
  EXPECT_EQ(error_of<Note>(bytes_of({0x08})), "message Note.number: it ends too soon");
  EXPECT_EQ(error_of<Note>(bytes_of({0x80})), "message Note: it ends too soon");
  EXPECT_EQ(error_of<Note>(bytes_of({0x12, 5, 'x'})), "message Note.text: it ends too soon");
  EXPECT_EQ(error_of<Note>(bytes_of({0x25, 0, 0})), "message Note.share: it ends too soon");
  EXPECT_EQ(error_of<Note>(bytes_of({0x2a, 1, 0x80})), "message Note.tokens: it ends too soon");
  EXPECT_EQ(error_of<Note>("\x82\x01\x05"
                           "12345"),
            "message Note.shares: it ends too soon");
  EXPECT_EQ(error_of<Note>(bytes_of({0x0a, 0})), "message Note.number: form 2; want 0");
  EXPECT_EQ(error_of<Note>(bytes_of({0x28, 2})), "message Note.tokens: form 0; want 2");
  EXPECT_EQ(error_of<Note>(bytes_of({0x00, 0})), "message Note: a field of number 0");
  EXPECT_EQ(error_of<Note>(bytes_of({0xf3, 0x01})), "message Note: field 30 of unknown form 3");
  EXPECT_EQ(error_of<Note>("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
            "message Note.number: a number of more than 64 bits");
  EXPECT_EQ(error_of<Note>(bytes_of({0x5a, 3, 1, 2, 3})),
            "message Note.counts: more than 2 values");
  EXPECT_EQ(error_of<Note>(bytes_of({0x52, 0, 0x52, 0, 0x52, 0, 0x52, 0})),
            "message Note.three: more than 3 values");
}

TEST(Wire, ShortBytesDoNotTakeMuchMemory) {
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) {
    bytes += bytes_of({0x32, 0});  // A part, of two bytes here and dozens in memory.
  }
  EXPECT_EQ(error_of<Note>(bytes),
            "message Note.parts: more memory than a message of this length may take");
}

TEST(Wire, SurvivesAnyBytes) {
  const std::uint64_t seed = 0xf1e1d5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Letter letter;
    test::Filler(rng.next()).fill(type_of<Letter>(), &letter);
    std::string bytes = wire::encode(letter);
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    bytes.resize(rng.below(bytes.size() + 1));
    const auto read = wire::decode<Letter>(bytes);
    refused += read ? 0 : 1;
    if (read) {  // What was understood can be said again.
      const std::string again = wire::encode(*read);
      const auto same = wire::decode<Letter>(again);
      ASSERT_TRUE(same);
      EXPECT_EQ(wire::encode(*same), again);
    }
  }
  EXPECT_GT(refused, 10'000) << "bytes that mean nothing must be refused";
}

}  // namespace
}  // namespace heddle
