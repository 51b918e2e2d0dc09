// Engines on several devices at once: of each of them as much, of all or of none.

#include <vector>

#include <gtest/gtest.h>

#include "core/engines_core.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using spec::SuspendLevel;
using test::find;

constexpr ModelId kPair{1};
constexpr ModelId kAlone{2};
constexpr DeviceId kFirst{3};
constexpr DeviceId kSecond{5};

template <class T>
std::vector<T> all_of(const std::vector<EnginesCommand>& commands) {
  std::vector<T> all;
  for (const EnginesCommand& command : commands) {
    if (const T* one = std::get_if<T>(&command)) {
      all.push_back(*one);
    }
  }
  return all;
}

/// An engine of 12 pages on each of two devices, and one of 12 on the second, which have 20 each.
class Two {
 public:
  explicit Two(bool workers = false) {
    configuration.host_pages = 50;
    for (const DeviceId id : {kFirst, kSecond}) {
      if (!workers) {
        configuration.devices.push_back({.id = id, .pages = 20});
      }
    }
    const std::vector levels{SuspendLevel::kSleep, SuspendLevel::kStop};
    configuration.engines = {
        {.model = kPair, .device = kFirst, .pages = 12, .levels = levels, .further = {kSecond}},
        {.model = kAlone, .device = kSecond, .pages = 12, .levels = levels}};
    tell(configuration);
  }
  std::vector<EnginesCommand> tell(const EnginesEvent& event) {
    std::vector<EnginesCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  }
  std::vector<EnginesCommand> load(ModelId model, DeviceId device) {
    return tell(LoadOn{.device = device,
                       .model = model,
                       .basis = {.epoch = WorkerEpoch(1), .version = device.value()}});
  }
  /// Both orders, of which the second has it come.
  std::vector<EnginesCommand> load_pair() {
    EXPECT_TRUE(load(kPair, kFirst).empty());
    return load(kPair, kSecond);
  }
  EngineLife run_pair() {
    const EngineLife life = find<StartEngine>(load_pair())->life;
    tell(EngineStarted{.model = kPair, .life = life, .held_pages = 21});
    return life;
  }
  [[nodiscard]] ledger::Share of(DeviceId device) const {
    return core.usage(device)->of(ledger::LeaseKind::kExternal);
  }
  [[nodiscard]] EngineState state(ModelId model) const {
    for (const EngineStatus& status : core.engines()) {
      if (status.model == model) {
        return status.state;
      }
    }
    return EngineState::kStopped;
  }

  Instant now{100s};
  ConfigureEngines configuration{};
  EnginesCore core{};
};

TEST(EnginesOnSeveral, ComeOnceThereIsAnOrderForEachDeviceAndHaveAsMuchOfAll) {
  Two two;
  const auto start = two.load_pair();
  ASSERT_EQ(all_of<StartEngine>(start).size(), 1U);
  EXPECT_EQ(two.core.usage(kFirst)->free, 8);
  EXPECT_EQ(two.core.usage(kSecond)->free, 8);
  const auto said = two.tell(
      EngineStarted{.model = kPair, .life = find<StartEngine>(start)->life, .held_pages = 21});
  ASSERT_NE(find<EngineSaid>(said), nullptr);
  EXPECT_EQ(find<EngineSaid>(said)->device, kFirst);
  // What was measured is of both devices together.
  EXPECT_EQ(two.of(kFirst), (ledger::Share{.reserved = 12, .held = 11}));
  EXPECT_EQ(two.of(kSecond), (ledger::Share{.reserved = 12, .held = 11}));
}

TEST(EnginesOnSeveral, HaveNothingOfOneDeviceWhereAnotherHasNoRoom) {
  Two two;
  two.tell(
      EngineStarted{.model = kAlone, .life = find<StartEngine>(two.load(kAlone, kSecond))->life});
  const auto refused = two.load_pair();
  EXPECT_EQ(find<StartEngine>(refused), nullptr);
  EXPECT_EQ(find<EngineSaid>(refused)->news, EngineNews::kRefused);
  EXPECT_EQ(two.core.usage(kFirst)->free, 20);
}

TEST(EnginesOnSeveral, GiveAsMuchOfEachBack) {
  Two two;
  const EngineLife life = two.run_pair();
  const auto suspend = two.tell(EvictFrom{.device = kFirst, .model = kPair, .free_pages = 8});
  ASSERT_EQ(all_of<SuspendEngine>(suspend).size(), 1U);
  const auto out = two.tell(EngineSuspended{
      .model = kPair, .life = life, .level = SuspendLevel::kSleep, .held_pages = 5});
  EXPECT_EQ(find<EngineSaid>(out)->held_pages, 3);
  EXPECT_EQ(two.core.usage(kFirst)->free, 17);
  EXPECT_EQ(two.core.usage(kSecond)->free, 17);
  ASSERT_NE(find<ResumeEngine>(two.load_pair()), nullptr);
  EXPECT_EQ(two.core.usage(kFirst)->free, 8);
}

TEST(EnginesOnSeveral, BorrowOfOneWorkerAfterTheOther) {
  Two two(true);
  const auto first = two.load_pair();
  ASSERT_EQ(all_of<Borrow>(first).size(), 1U);
  EXPECT_EQ(find<Borrow>(first)->device, kFirst);
  EXPECT_EQ(find<Borrow>(first)->basis.version, kFirst.value());
  const auto second = two.tell(LoanGranted{.model = kPair});
  ASSERT_EQ(all_of<Borrow>(second).size(), 1U);
  EXPECT_EQ(find<Borrow>(second)->device, kSecond);
  EXPECT_EQ(find<Borrow>(second)->basis.version, kSecond.value());
  EXPECT_EQ(find<StartEngine>(second), nullptr);
  EXPECT_NE(find<StartEngine>(two.tell(LoanGranted{.model = kPair})), nullptr);
}

TEST(EnginesOnSeveral, RepayTheFirstWhereTheSecondRefuses) {
  Two two(true);
  two.load_pair();
  two.tell(LoanGranted{.model = kPair});
  const auto refused =
      two.tell(LoanRefused{.model = kPair, .reason = {Code::kResourceExhausted, "no room"}});
  ASSERT_EQ(all_of<Repay>(refused).size(), 1U);
  EXPECT_EQ(find<Repay>(refused)->device, kFirst);
  EXPECT_EQ(find<Repay>(refused)->pages, 12);
  EXPECT_EQ(find<EngineSaid>(refused), nullptr) << "the first has its pages back before that";
  const auto said = two.tell(LoanRepaid{.model = kPair});
  EXPECT_EQ(find<EngineSaid>(said)->news, EngineNews::kRefused);
}

TEST(EnginesOnSeveral, CalledBackBetweenTwoLoansTheyRepayWhatTheyHave) {
  Two two(true);
  two.load_pair();
  two.tell(EvictFrom{.device = kFirst, .model = kPair, .mode = EvictMode::kNow});
  const auto undone = two.tell(LoanGranted{.model = kPair});
  EXPECT_EQ(find<Borrow>(undone), nullptr);
  ASSERT_EQ(all_of<Repay>(undone).size(), 1U);
  EXPECT_EQ(find<EngineSaid>(two.tell(LoanRepaid{.model = kPair}))->news, EngineNews::kEnded);
}

TEST(EnginesOnSeveral, RepayEachWorkerWhenTheyEnd) {
  Two two(true);
  two.load_pair();
  two.tell(LoanGranted{.model = kPair});
  const EngineLife life = find<StartEngine>(two.tell(LoanGranted{.model = kPair}))->life;
  two.tell(EngineStarted{.model = kPair, .life = life, .held_pages = 20});
  const auto gone = two.tell(EngineExited{.model = kPair, .life = life, .how = "signal 9"});
  const std::vector<Repay> repaid = all_of<Repay>(gone);
  ASSERT_EQ(repaid.size(), 2U);
  EXPECT_EQ(repaid[0].device, kFirst);
  EXPECT_EQ(repaid[1].device, kSecond);
  EXPECT_EQ(find<EngineSaid>(two.tell(LoanRepaid{.model = kPair})), nullptr);
  EXPECT_EQ(find<EngineSaid>(two.tell(LoanRepaid{.model = kPair}))->news, EngineNews::kLost);
}

TEST(EnginesOnSeveral, HalfAnOrderThatWasTakenBackHasNothingCome) {
  Two two;
  two.load(kPair, kFirst);
  EXPECT_EQ(find<EngineSaid>(two.tell(EvictFrom{.device = kFirst, .model = kPair}))->news,
            EngineNews::kEnded);
  EXPECT_TRUE(two.load(kPair, kSecond).empty());
  EXPECT_EQ(two.state(kPair), EngineState::kStopped);
}

}  // namespace
}  // namespace heddle::core
