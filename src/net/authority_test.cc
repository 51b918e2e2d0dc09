#include "net/authority.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "net/certificate.h"
#include "net/test_cluster.h"

namespace heddle::net {
namespace {

using std::chrono::days;

std::string content_of(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Validity for_days(int count) {
  return {.now = system_now(), .days = days(count)};
}

TEST(Authority, NamesItsClusterAndKeepsItsKeyToItself) {
  TestCluster cluster("test-1");
  const Result<CertificateFacts> facts = read_certificate(cluster.authority().certificate);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->cluster, "test-1");
  EXPECT_FALSE(facts->identity);
  EXPECT_EQ(std::filesystem::status(cluster.authority().key).permissions(),
            std::filesystem::perms(0600));
}

TEST(Authority, IssuesWhatItWasAskedFor) {
  TestCluster cluster;
  const Result<IssuedFiles> files =
      issue_certificate(cluster.folder(),
                        {.role = Role::kGateway, .name = "g1", .addresses = {"g1.lan", "::1"}},
                        for_days(7));
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->certificate, cluster.folder() + "/g1.crt");
  EXPECT_EQ(files->key, cluster.folder() + "/g1.key");
  EXPECT_EQ(std::filesystem::status(files->key).permissions(), std::filesystem::perms(0600));
  const Result<CertificateFacts> facts = read_certificate(files->certificate);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->identity->uri(), "heddle://prod/gateway/g1");
  EXPECT_EQ(facts->addresses, (std::vector<std::string>{"g1.lan", "::1"}));
  EXPECT_EQ(facts->until - facts->from, days(7) + std::chrono::minutes(5));
  EXPECT_TRUE(Credentials::open({.authority = cluster.authority().certificate,
                                 .certificate = files->certificate,
                                 .key = files->key}));
}

TEST(Authority, OverwritesNothing) {
  TestCluster cluster;
  const std::string key = content_of(cluster.authority().key);
  const Result<IssuedFiles> again = make_authority(cluster.folder(), "other", for_days(7));
  EXPECT_EQ(again.error().code, Code::kFailedPrecondition);
  EXPECT_NE(again.error().message.find("will not be overwritten"), std::string::npos);
  EXPECT_EQ(content_of(cluster.authority().key), key);

  const std::string certificate = content_of(cluster.issue(Role::kAgent, "h1").certificate);
  EXPECT_FALSE(
      issue_certificate(cluster.folder(), {.role = Role::kManager, .name = "h1"}, for_days(1)));
  EXPECT_EQ(content_of(cluster.folder() + "/h1.crt"), certificate);
  // The authority's own files are no exception, nor is a key alone, which stays without company.
  EXPECT_FALSE(issue_certificate(cluster.folder(), {.name = "ca"}, for_days(1)));
  std::filesystem::remove(cluster.folder() + "/h1.crt");
  EXPECT_FALSE(issue_certificate(cluster.folder(), {.name = "h1"}, for_days(1)));
  EXPECT_FALSE(std::filesystem::exists(cluster.folder() + "/h1.crt"));
}

TEST(Authority, RefusesNamesAndAddressesThatWouldNotWork) {
  TestCluster cluster;
  for (const char* const name : {"", "h 1", "../h1", "h1,URI:heddle://prod/manager/m", ".h1"}) {
    const Result<IssuedFiles> files =
        issue_certificate(cluster.folder(), {.name = name}, for_days(1));
    EXPECT_EQ(files.error().code, Code::kInvalidArgument) << name;
  }
  for (const char* const address :
       {"", "10.0.0.1:7000", "h1,URI:heddle://prod/manager/m", "-h1", "h 1"}) {
    const Result<IssuedFiles> files =
        issue_certificate(cluster.folder(), {.name = "h1", .addresses = {address}}, for_days(1));
    EXPECT_EQ(files.error().code, Code::kInvalidArgument) << address;
  }
  EXPECT_FALSE(std::filesystem::exists(cluster.folder() + "/h1.key"));
  EXPECT_EQ(make_authority(cluster.folder() + "/x", "a/b", for_days(1)).error().code,
            Code::kInvalidArgument);
}

TEST(Authority, IssuesNothingThatOutlivesIt) {
  TestCluster cluster;
  const std::string folder = cluster.folder() + "/short";
  ASSERT_TRUE(make_authority(folder, "prod", for_days(10)));
  const Result<IssuedFiles> files = issue_certificate(folder, {.name = "h1"}, for_days(11));
  EXPECT_EQ(files.error().code, Code::kFailedPrecondition);
  EXPECT_NE(files.error().message.find("would outlive"), std::string::npos)
      << files.error().message;
  EXPECT_TRUE(issue_certificate(folder, {.name = "h1"}, for_days(10)));
  const Validity later{.now = system_now() + days(11), .days = days(1)};
  const Result<IssuedFiles> expired = issue_certificate(folder, {.name = "h2"}, later);
  EXPECT_NE(expired.error().message.find("has expired"), std::string::npos)
      << expired.error().message;
}

TEST(Authority, IsNoOtherCertificate) {
  TestCluster cluster;
  EXPECT_EQ(issue_certificate(cluster.folder() + "/none", {.name = "h1"}, for_days(1)).error().code,
            Code::kNotFound);
  // A process's own certificate vouches for nobody.
  const CredentialFiles agent = cluster.issue(Role::kAgent, "h1");
  const std::string folder = cluster.folder() + "/fake";
  std::filesystem::create_directory(folder);
  std::filesystem::copy(agent.certificate, folder + "/ca.crt");
  std::filesystem::copy(agent.key, folder + "/ca.key");
  const Result<IssuedFiles> files = issue_certificate(folder, {.name = "h2"}, for_days(1));
  EXPECT_EQ(files.error().code, Code::kInvalidArgument);
  EXPECT_NE(files.error().message.find("no authority's"), std::string::npos)
      << files.error().message;
  // Nor does an authority without its own key.
  std::filesystem::remove(folder + "/ca.crt");
  std::filesystem::copy(cluster.authority().certificate, folder + "/ca.crt");
  EXPECT_NE(issue_certificate(folder, {.name = "h2"}, for_days(1)).error().message.find("no key"),
            std::string::npos);
}

}  // namespace
}  // namespace heddle::net
