#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(Units, ReadsSizesExactly) {
  EXPECT_EQ(parse_bytes("0").value(), 0U);
  EXPECT_EQ(parse_bytes("4096").value(), 4096U);
  EXPECT_EQ(parse_bytes("512B").value(), 512U);
  EXPECT_EQ(parse_bytes("64KiB").value(), 65536U);
  EXPECT_EQ(parse_bytes("64 MiB").value(), 64U << 20U);
  EXPECT_EQ(parse_bytes(" 2GB ").value(), 2'000'000'000U);
  EXPECT_EQ(parse_bytes("1.5GiB").value(), 3U << 29U);
  EXPECT_EQ(parse_bytes("1.500000000000000000GiB").value(), 3U << 29U);
  EXPECT_EQ(parse_bytes("18446744073709551615").value(), UINT64_MAX);
}

TEST(Units, RejectsWhatIsNotASize) {
  for (const char* text : {"",
                           " ",
                           "MiB",
                           "-1",
                           "+1",
                           "64M",
                           "64mib",
                           "1.2.3KB",
                           ".5KB",
                           "5.KB",
                           "1.5B",
                           "0.0001KB",
                           "18446744073709551616",
                           "20000000TB",
                           "1e3",
                           "0x10",
                           "64MiBx",
                           "1 2KB",
                           "999999999999999999999999999999.0KB"}) {
    const auto bytes = parse_bytes(text);
    ASSERT_FALSE(bytes.has_value()) << text;
    EXPECT_EQ(bytes.error().code, Code::kInvalidArgument);
    EXPECT_THAT(bytes.error().message, HasSubstr("such as 64MiB")) << text;
    EXPECT_THAT(bytes.error().message, HasSubstr("\"" + std::string(text) + "\""));
  }
}

TEST(Units, ReadsRates) {
  EXPECT_EQ(parse_rate("50MB/s").value(), 50'000'000U);
  EXPECT_EQ(parse_rate("1 GiB/s").value(), 1U << 30U);
  EXPECT_EQ(parse_rate("25Gb/s").value(), 25'000'000'000U / 8);
  EXPECT_EQ(parse_rate("8b/s").value(), 1U);
  for (const char* text : {"50MB", "0B/s", "7b/s", "1Gb", "0", "/s", "50MB/m", "-1MB/s"}) {
    const auto rate = parse_rate(text);
    ASSERT_FALSE(rate.has_value()) << text;
    EXPECT_THAT(rate.error().message, HasSubstr("such as 50MB/s"));
  }
}

TEST(Units, ReadsSpansOfTime) {
  EXPECT_EQ(parse_duration("20ms").value(), milliseconds(20));
  EXPECT_EQ(parse_duration("1.5s").value(), milliseconds(1500));
  EXPECT_EQ(parse_duration("250us").value(), microseconds(250));
  EXPECT_EQ(parse_duration("10m").value(), seconds(600));
  EXPECT_EQ(parse_duration("2h").value(), hours(2));
  EXPECT_EQ(parse_duration("0").value(), Duration(0));
  for (const char* text : {"", "20", "ms", "-1s", "1d", "0.5ns", "90000h", "1 0s"}) {
    const auto duration = parse_duration(text);
    ASSERT_FALSE(duration.has_value()) << text;
    EXPECT_THAT(duration.error().message, HasSubstr("such as 20ms"));
  }
}

TEST(Units, WritesThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(65536), "64.0 KiB");
  EXPECT_EQ(format_bytes((1U << 20U) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(3U << 29U), "1.50 GiB");
  EXPECT_EQ(format_bytes(700ULL << 30U), "700 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(format_rate(50e6), "50.0 MB/s");
  EXPECT_EQ(format_rate(999.9), "1.00 KB/s");
  EXPECT_EQ(format_rate(-1), "0.00 B/s");
}

TEST(Units, WritesSpansOfTime) {
  EXPECT_EQ(format_duration(Duration(0)), "0 s");
  EXPECT_EQ(format_duration(Duration(850)), "850 ns");
  EXPECT_EQ(format_duration(microseconds(1250)), "1.25 ms");
  EXPECT_EQ(format_duration(seconds(12)), "12.0 s");
  EXPECT_EQ(format_duration(seconds(200)), "3m 20s");
  EXPECT_EQ(format_duration(seconds(7500)), "2h 05m");
  EXPECT_EQ(format_duration(milliseconds(-20)), "-20.0 ms");
}

}  // namespace
}  // namespace heddle
