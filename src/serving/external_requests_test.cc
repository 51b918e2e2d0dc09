#include "serving/external_requests.h"

#include <gtest/gtest.h>

namespace heddle::serving {
namespace {

using namespace std::chrono_literals;
using core::IncidentKind;

class Deaf final : public core::ExternalSink {
 public:
  void on_waiting(Duration /*since*/) override {}
  void on_ready(const core::EngineRoute& /*route*/) override {}
  void on_lost(const Error& /*error*/) override {}
  void on_error(const Error& /*error*/) override {}
};

std::shared_ptr<core::ExternalRequest> request(std::uint64_t id, std::uint64_t model, int arrived) {
  auto made = std::make_shared<core::ExternalRequest>();
  made->id = RequestId(id);
  made->model = ModelId(model);
  made->times.arrived = Instant(std::chrono::seconds(arrived));
  return made;
}

TEST(ForeignRequests, AreFoundUntilTheyEnd) {
  ExternalRequests requests;
  requests.add(request(1, 7, 5), std::make_shared<Deaf>());
  ASSERT_NE(requests.find(RequestId(1)), nullptr);
  EXPECT_EQ(requests.find(RequestId(2)), nullptr);
  EXPECT_TRUE(requests.remove(RequestId(1)).has_value());
  EXPECT_EQ(requests.find(RequestId(1)), nullptr);
  EXPECT_FALSE(requests.remove(RequestId(1)).has_value());
}

TEST(ForeignRequests, OnlyThoseForwardedAreLostWithAnEngine) {
  ExternalRequests requests;
  requests.add(request(1, 7, 5), std::make_shared<Deaf>());
  requests.add(request(2, 7, 4), std::make_shared<Deaf>());
  requests.add(request(3, 8, 1), std::make_shared<Deaf>());
  requests.find(RequestId(1))->forwarded = true;
  requests.find(RequestId(3))->forwarded = true;

  const auto lost = requests.lose(ModelId(7), Instant(1s));

  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].request->id, RequestId(1));
  EXPECT_EQ(lost[0].request->restarts, 1);
  EXPECT_FALSE(requests.find(RequestId(1))->forwarded);
  EXPECT_TRUE(requests.find(RequestId(3))->forwarded);
}

TEST(ForeignRequests, NoteThatTheirEngineWasSuspendedWithThem) {
  ExternalRequests requests;
  requests.add(request(1, 7, 5), std::make_shared<Deaf>());
  requests.add(request(2, 7, 5), std::make_shared<Deaf>());
  requests.find(RequestId(1))->forwarded = true;
  requests.find(RequestId(1))->request->device = DeviceId(3);

  requests.note(ModelId(7), IncidentKind::kAwoken, Instant(1s));
  requests.note(ModelId(7), IncidentKind::kSuspended, Instant(2s));
  requests.note(ModelId(8), IncidentKind::kAwoken, Instant(3s));
  requests.note(ModelId(7), IncidentKind::kAwoken, Instant(4s));
  requests.note(ModelId(7), IncidentKind::kAwoken, Instant(5s));

  EXPECT_EQ(requests.find(RequestId(1))->request->incidents,
            (std::vector<core::Incident>{
                {.at = Instant(2s), .kind = IncidentKind::kSuspended, .device = DeviceId(3)},
                {.at = Instant(4s), .kind = IncidentKind::kAwoken, .device = DeviceId(3)}}));
  EXPECT_TRUE(requests.find(RequestId(2))->request->incidents.empty()) << "it waits";
}

TEST(ForeignRequests, AnEngineIsSilentSinceTheLastByteOfAny) {
  ExternalRequests requests;
  const auto add = [&](std::uint64_t id, std::int64_t heard) {
    auto request = std::make_shared<core::ExternalRequest>();
    request->id = RequestId(id);
    request->model = ModelId(1);
    request->heard = Instant(Duration(heard));
    requests.add(request, nullptr);
  };
  add(1, 50);
  EXPECT_FALSE(requests.silent_since(ModelId(1))) << "it was not asked yet";
  requests.find(RequestId(1))->forwarded = true;
  EXPECT_EQ(requests.silent_since(ModelId(1)), Instant(Duration(50)));
  add(2, 80);
  requests.find(RequestId(2))->forwarded = true;
  EXPECT_EQ(requests.silent_since(ModelId(1)), Instant(Duration(80)));
  EXPECT_FALSE(requests.silent_since(ModelId(2)));
}

}  // namespace
}  // namespace heddle::serving
