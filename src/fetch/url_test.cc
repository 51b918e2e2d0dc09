#include "fetch/url.h"

#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

TEST(SplitUrl, TakesItApart) {
  const auto parts = split_url("HTTPS://User:x@Host.Example:8443/a/b?c#d");
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->scheme, "https");
  EXPECT_EQ(parts->host, "host.example");
  EXPECT_EQ(parts->port, 8443);
  EXPECT_EQ(parts->path, "/a/b");
  EXPECT_EQ(parts->authority, "host.example:8443");
  EXPECT_TRUE(parts->has_user);
  const auto v6 = split_url("http://[::1]:9000");
  ASSERT_TRUE(v6.has_value());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, 9000);
  EXPECT_EQ(v6->path, "/");
  EXPECT_EQ(split_url("http://h")->port, 80);
  EXPECT_EQ(split_url("https://h")->port, 443);
}

TEST(SplitUrl, RefusesWhatIsNone) {
  for (const char* url :
       {"", "h", "ftp://h/", "file:///x", "http://", "http://h:x/", "http://[::1"}) {
    EXPECT_FALSE(split_url(url).has_value()) << url;
  }
}

TEST(Shown, HasNoCredentials) {
  EXPECT_EQ(shown("https://u:secret@host/a?X-Amz-Signature=secret"), "https://host/a");
  EXPECT_EQ(shown("https://host/a@b"), "https://host/a@b");
  EXPECT_EQ(shown("org/name@main"), "org/name@main");
  EXPECT_EQ(shown(std::string(1000, 'x')).size(), 303U);
}

TEST(PercentEncode, IsThatOfSignatures) {
  EXPECT_EQ(percent_encode("a b/c~d+e=\xc3\xa9", true), "a%20b/c~d%2Be%3D%C3%A9");
  EXPECT_EQ(percent_encode("refs/pr/7", false), "refs%2Fpr%2F7");
}

TEST(StaysBelow, RefusesEveryWayOut) {
  for (const char* name : {"config.json", "1_Pooling/config.json", "a..b", "..."}) {
    EXPECT_TRUE(stays_below(name)) << name;
  }
  for (const char* name : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a/."}) {
    EXPECT_FALSE(stays_below(name)) << name;
  }
  EXPECT_FALSE(stays_below(std::string_view("a\0b", 3)));
}

TEST(ReachOf, KnowsThisMachineAndItsLink) {
  for (const char* host :
       {"127.0.0.1", "127.1", "0.0.0.0", "localhost", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(reach_of(host), Reach::kLoopback) << host;
  }
  for (const char* host :
       {"169.254.169.254", "fe80::1%eth0", "::ffff:169.254.1.1", "fd00:ec2::254", "2852039166"}) {
    EXPECT_EQ(reach_of(host), Reach::kLinkLocal) << host;
  }
  for (const char* host : {"10.0.0.1", "93.184.216.34", "2001:db8::1", "huggingface.co"}) {
    EXPECT_EQ(reach_of(host), Reach::kNetwork) << host;
  }
}

}  // namespace
}  // namespace heddle::fetch
