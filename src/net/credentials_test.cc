#include "net/credentials.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "net/test_cluster.h"

namespace heddle::net {
namespace {

void copy(const CredentialFiles& from, const CredentialFiles& to) {
  const auto over = std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy(from.certificate, to.certificate, over);
  std::filesystem::copy(from.key, to.key, over);
}

void expect_refused(const CredentialFiles& files, Code code, const std::string& why) {
  const auto credentials = Credentials::open(files);
  ASSERT_FALSE(credentials) << why;
  EXPECT_EQ(credentials.error().code, code) << credentials.error().message;
  EXPECT_NE(credentials.error().message.find(why), std::string::npos)
      << credentials.error().message;
}

TEST(Credentials, AreWhoTheirCertificateNames) {
  TestCluster cluster;
  const auto credentials = Credentials::open(cluster.issue(Role::kGateway, "g1"));
  ASSERT_TRUE(credentials) << credentials.error().message;
  EXPECT_EQ((*credentials)->identity().uri(), "heddle://prod/gateway/g1");
}

TEST(Credentials, ThatOthersWouldRefuseAreRefused) {
  TestCluster cluster;
  TestCluster other;
  const CredentialFiles good = cluster.issue(Role::kAgent, "h1");
  CredentialFiles files = good;
  files.authority = other.authority().certificate;
  expect_refused(files, Code::kFailedPrecondition, "not good for the authority");
  files = good;
  files.key = cluster.issue(Role::kAgent, "h2").key;
  expect_refused(files, Code::kInvalidArgument, "is no key for the certificate");
  files = good;
  files.certificate += "x";
  expect_refused(files, Code::kNotFound, files.certificate);
  files = good;
  files.authority += "x";
  expect_refused(files, Code::kInvalidArgument, "no certificate of an authority");
  expect_refused(cluster.issue(Role::kAgent, "old", std::chrono::days(2)),
                 Code::kFailedPrecondition,
                 "has expired");
  expect_refused(cluster.sign({.names = "DNS:h1"}), Code::kInvalidArgument, "of no cluster");
  expect_refused(cluster.sign({.use = "serverAuth"}),
                 Code::kFailedPrecondition,
                 "for servers and for clients");
  expect_refused(cluster.sign({.use = "clientAuth"}),
                 Code::kFailedPrecondition,
                 "for servers and for clients");
  files.authority = cluster.authority().certificate;
  files.certificate = cluster.authority().certificate;
  files.key = cluster.authority().key;
  expect_refused(files, Code::kInvalidArgument, "is an authority's");
}

TEST(Credentials, AreReadAgainWhereTheFilesHaveChanged) {
  TestCluster cluster;
  const CredentialFiles files = cluster.issue(Role::kAgent, "h1");
  const auto opened = Credentials::open(files);
  ASSERT_TRUE(opened);
  Credentials& credentials = **opened;
  const auto first = credentials.context();
  EXPECT_EQ(credentials.context(), first);

  copy(cluster.sign({.names = "URI:heddle://prod/agent/h1"}), files);
  const auto second = credentials.context();
  EXPECT_NE(second, first);
  EXPECT_EQ(credentials.context(), second);

  // Another's, or none at all, is not taken.
  copy(cluster.issue(Role::kAgent, "h2"), files);
  EXPECT_EQ(credentials.context(), second);
  std::filesystem::remove(files.key);
  EXPECT_EQ(credentials.context(), second);
}

}  // namespace
}  // namespace heddle::net
