#include "net/certificate.h"

#include <fstream>

#include <gtest/gtest.h>

#include "net/test_cluster.h"

namespace heddle::net {
namespace {

using std::chrono::days;
using std::chrono::sys_days;

TEST(Certificate, SaysWhoseItIsAndHowLongItIsGood) {
  TestCluster cluster;
  const CredentialFiles files = cluster.sign(
      {.names = "URI:heddle://prod/agent/h1,DNS:h1.example,IP:10.0.0.1,IP:fe80::1,URI:urn:other"});
  const Result<CertificateFacts> facts = read_certificate(files.certificate);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->cluster, "prod");
  ASSERT_TRUE(facts->identity);
  EXPECT_EQ(facts->identity->uri(), "heddle://prod/agent/h1");
  EXPECT_EQ(facts->addresses, (std::vector<std::string>{"h1.example", "10.0.0.1", "fe80::1"}));
  EXPECT_EQ(facts->until - facts->from, std::chrono::hours(2));
}

TEST(Certificate, OfNobodyOfAClusterIsRefused) {
  TestCluster cluster;
  for (const char* const names : {"DNS:h1",
                                  "URI:heddle://prod/agent/h1,URI:heddle://prod/agent/h2",
                                  "URI:heddle://prod/agent/h1,URI:heddle://prod/manager/h1",
                                  "URI:heddle://prod/worker/h1",
                                  "URI:heddle://",
                                  "URI:spiffe://prod/agent/h1"}) {
    const Result<CertificateFacts> facts =
        read_certificate(cluster.sign({.names = names}).certificate);
    ASSERT_FALSE(facts) << names;
    EXPECT_EQ(facts.error().code, Code::kInvalidArgument);
    EXPECT_NE(facts.error().message.find("want exactly one alternative name"), std::string::npos)
        << facts.error().message;
  }
}

TEST(Certificate, ErrorsNameTheFile) {
  TestCluster cluster;
  const std::string missing = cluster.folder() + "/none.crt";
  EXPECT_EQ(read_certificate(missing).error().code, Code::kNotFound);
  EXPECT_NE(read_certificate(missing).error().message.find(missing), std::string::npos);
  const std::string text = cluster.folder() + "/text.crt";
  std::ofstream(text) << "no certificate";
  EXPECT_EQ(read_certificate(text).error().code, Code::kInvalidArgument);
  EXPECT_NE(read_certificate(text).error().message.find(text), std::string::npos);
}

TEST(Certificate, IsGoodFromItsBeginningUntilBeforeItsEnd) {
  const CertificateFacts facts{.from = sys_days(days(20000)), .until = sys_days(days(20001))};
  EXPECT_TRUE(check_time(facts, facts.from));
  EXPECT_TRUE(check_time(facts, facts.until - std::chrono::seconds(1)));
  const Result<void> late = check_time(facts, facts.until);
  EXPECT_EQ(late.error().code, Code::kFailedPrecondition);
  EXPECT_NE(late.error().message.find("has expired: it was good until 2024-10-05 00:00:00 UTC"),
            std::string::npos)
      << late.error().message;
  const Result<void> early = check_time(facts, facts.from - std::chrono::seconds(1));
  EXPECT_NE(early.error().message.find("not good before 2024-10-04 00:00:00 UTC"),
            std::string::npos)
      << early.error().message;
}

}  // namespace
}  // namespace heddle::net
