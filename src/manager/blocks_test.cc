#include "manager/blocks.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

/// Hosts that offer a model in stages, each on all of its devices.
class Blocks : public ::testing::Test {
 protected:
  /// A host of so many devices.
  void add(std::uint64_t number, std::uint64_t devices = 1, std::size_t stages = 2) {
    const HostId id(number);
    host::HostFacts& facts = hosts[id] = {
        .name = "h" + std::to_string(number), .isa = "avx2", .build = "1.2", .step_tokens = 512};
    host::Offer& offer =
        offers[id] = {.name = "m", .digest = "d", .ranks = {stages, {.image_bytes = 9}}};
    for (std::uint64_t i = 0; i < devices; ++i) {
      facts.devices.push_back(
          {.id = device_id(id, i), .pages = 10, .page_bytes = 4096, .in_host_memory = true});
      for (host::OfferedRank& rank : offer.ranks) {
        rank.footprints[device_id(id, i)] = {.image_pages = 8};
      }
    }
  }
  /// Its own devices are a block.
  void give_block(std::uint64_t number) {
    offers[HostId(number)].blocks = {
        {.devices = {device_id(HostId(number), 0), device_id(HostId(number), 1)}}};
  }

  using Names = std::vector<std::vector<std::string>>;
  /// "h1/0" of each device of each block.
  Names found() {
    const auto blocks = find_blocks(offers, hosts);
    EXPECT_TRUE(blocks) << blocks.error().message;
    Names names;
    for (const host::Block& block : *blocks) {
      std::vector<std::string>& all = names.emplace_back();
      for (const DeviceId device : block.devices) {
        const HostId host = host_of(device);
        all.push_back("h" + std::to_string(host.value()) + "/" +
                      std::to_string(device.value() - device_id(host, 0).value()));
      }
    }
    return names;
  }
  std::string why() {
    const auto blocks = find_blocks(offers, hosts);
    EXPECT_FALSE(blocks);
    return blocks ? "" : blocks.error().message;
  }

  std::map<HostId, host::Offer> offers{};
  std::map<HostId, host::HostFacts> hosts{};
};

TEST_F(Blocks, EachDeviceLeadsABlockWithThoseOfTheNextHosts) {
  for (const std::uint64_t host : {1U, 2U, 3U}) {
    add(host);
  }
  EXPECT_EQ(found(), (Names{{"h1/0", "h2/0"}, {"h2/0", "h3/0"}, {"h3/0", "h1/0"}}));
}

TEST_F(Blocks, DevicesOfAHostFollowEachOther) {
  add(1, 2, 4);
  add(2, 2, 4);
  EXPECT_EQ(found().front(), (std::vector<std::string>{"h1/0", "h1/1", "h2/0", "h2/1"}));
  EXPECT_EQ(found().size(), 4U);
}

TEST_F(Blocks, AHostThatCanHaveItAloneIsInNoBlockOfOthers) {
  add(1);
  add(2, 2);
  give_block(2);
  EXPECT_EQ(found(), (Names{{"h2/0", "h2/1"}}));
  add(3);
  EXPECT_EQ(found(), (Names{{"h2/0", "h2/1"}, {"h1/0", "h3/0"}, {"h3/0", "h1/0"}}));
}

TEST_F(Blocks, ADeviceThatCannotHoldAStageIsPassedOver) {
  add(1);
  add(2);
  add(3);
  hosts[HostId(2)].devices[0].pages = 7;
  EXPECT_EQ(found(), (Names{{"h1/0", "h3/0"}, {"h3/0", "h1/0"}}));
  hosts[HostId(3)].devices[0].in_host_memory = false;
  EXPECT_NE(why().find("there are 3 devices for it, of h1, h2, h3"), std::string::npos) << why();
}

TEST_F(Blocks, OnlyHostsThatAreAlikeShareABlock) {
  for (const std::uint64_t host : {1U, 2U, 3U, 4U}) {
    add(host);
  }
  hosts[HostId(2)].isa = hosts[HostId(4)].isa = "avx512";
  EXPECT_EQ(found(),
            (Names{{"h1/0", "h3/0"}, {"h3/0", "h1/0"}, {"h2/0", "h4/0"}, {"h4/0", "h2/0"}}));
}

TEST_F(Blocks, WhatDiffersIsSaidWhereThereIsNone) {
  add(1);
  EXPECT_NE(why().find("there are 1 devices for it, of h1"), std::string::npos) << why();
  const std::vector<std::pair<void (*)(host::HostFacts&, host::Offer&), std::string>> cases = {
      {[](host::HostFacts& facts, host::Offer&) { facts.isa = "neon"; },
       "h1 has processor features avx2, h2 has processor features neon"},
      {[](host::HostFacts& facts, host::Offer&) { facts.devices[0].page_bytes = 65536; },
       "h1 has pages of 4096 bytes, h2 has pages of 65536 bytes"},
      {[](host::HostFacts& facts, host::Offer&) { facts.build = "1.3"; },
       "h1 has build 1.2, h2 has build 1.3"},
      {[](host::HostFacts& facts, host::Offer&) { facts.step_tokens = 64; },
       "h1 has steps of 512 tokens, h2 has steps of 64 tokens"},
      {[](host::HostFacts&, host::Offer& offer) { offer.ranks[1].image_bytes = 4; },
       "h1 has weights of 9+9 bytes, h2 has weights of 9+4 bytes"}};
  for (const auto& [spoil, text] : cases) {
    add(2);
    spoil(hosts[HostId(2)], offers[HostId(2)]);
    EXPECT_NE(why().find(text), std::string::npos) << why();
  }
}

TEST_F(Blocks, AWholeModelHasNone) {
  add(1, 1, 1);
  EXPECT_EQ(found(), Names{});
}

}  // namespace
}  // namespace heddle::manager
