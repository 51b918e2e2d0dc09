#include "text/marker_scanner.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle::text {
namespace {

constexpr std::string_view kMarks[] = {"<a>", "<ab>"};

/// The text with its markers in brackets, and where it has ended.
std::string scanned(std::string_view text) {
  MarkerScanner scanner(kMarks);
  std::string said;
  const auto put = [&said](char c) { said += c; };
  for (const char c : text) {
    scanner.push(
        c, put, [&said](std::string_view marker) { said += "[" + std::string(marker) + "]"; });
  }
  scanner.finish(put);
  return said;
}

TEST(MarkerScanner, PartsMarkersFromText) {
  EXPECT_EQ(scanned("x<a>y<ab><a>"), "x[<a>]y[<ab>][<a>]");
}

TEST(MarkerScanner, WhatOnlyBeginsAsAMarkerIsText) {
  EXPECT_EQ(scanned("<b><abc>a>"), "<b><abc>a>");
  EXPECT_EQ(scanned("x<ab"), "x<ab");
}

TEST(MarkerScanner, AMarkerMayBeginWhereAnotherBreaksOff) {
  EXPECT_EQ(scanned("<<a<ab>"), "<<a[<ab>]");
}

}  // namespace
}  // namespace heddle::text
