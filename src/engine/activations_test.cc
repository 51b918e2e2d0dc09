#include "engine/activations.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

spec::ModelSpec model() {
  spec::ModelSpec model;
  model.hidden = 24;
  model.heads = 3;
  model.kv_heads = 1;
  model.head_dim = 10;
  model.intermediate = 50;
  model.vocab = 101;
  return model;
}

struct Piece {
  const char* name = nullptr;
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

Piece piece(const char* name, const ops::TensorRef& tensor) {
  return {name,
          tensor.data,
          tensor.data + tensor.shape[0] * tensor.shape[1] * ops::dtype_size(tensor.dtype)};
}

TEST(Activations, WhatIsAliveTogetherDoesNotOverlap) {
  for (const auto& [tokens, dtype] : {std::pair{1, spec::DType::kF32},
                                      std::pair{7, spec::DType::kBf16},
                                      std::pair{64, spec::DType::kBf16}}) {
    std::vector<std::byte> memory(activation_bytes(model(), dtype, tokens));
    const Activations a = place_activations(model(), dtype, tokens, memory.data());
    const std::vector<std::vector<Piece>> together{{piece("hidden", a.hidden),
                                                    piece("normed", a.normed),
                                                    piece("qkv", a.qkv),
                                                    piece("mixed", a.mixed)},
                                                   {piece("hidden", a.hidden),
                                                    piece("normed", a.normed),
                                                    piece("gate_up", a.gate_up),
                                                    piece("gated", a.gated)},
                                                   {piece("hidden", a.hidden),
                                                    piece("picked", a.picked),
                                                    piece("head_in", a.head_in),
                                                    piece("logits", a.logits),
                                                    piece("told", a.told)}};
    for (const auto& pieces : together) {
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        EXPECT_GE(pieces[i].begin, memory.data());
        EXPECT_LE(pieces[i].end, memory.data() + memory.size()) << pieces[i].name;
        for (std::size_t j = 0; j < i; ++j) {
          EXPECT_TRUE(pieces[i].end <= pieces[j].begin || pieces[j].end <= pieces[i].begin)
              << pieces[i].name << " and " << pieces[j].name;
        }
      }
    }
  }
}

TEST(Activations, HaveTheShapesOfTheModel) {
  constexpr auto kBf16 = spec::DType::kBf16;
  std::vector<std::byte> memory(activation_bytes(model(), kBf16, 7));
  const Activations a = place_activations(model(), kBf16, 7, memory.data());
  for (const ops::TensorRef& multiplied : {a.normed, a.mixed, a.gated, a.head_in}) {
    EXPECT_EQ(multiplied.dtype, kBf16);
  }
  for (const ops::TensorRef& exact : {a.hidden, a.qkv, a.gate_up, a.picked, a.logits, a.told}) {
    EXPECT_EQ(exact.dtype, spec::DType::kF32);
  }
  EXPECT_EQ(a.qkv.shape[1], 50);
  EXPECT_EQ(a.mixed.shape[1], 30);
  EXPECT_EQ(a.gate_up.shape[1], 100);
  EXPECT_EQ(a.logits.shape[0], kLogitRowsMin);
  EXPECT_EQ(Activations::rows(a.hidden, 3).shape[0], 3);
}

TEST(Activations, HaveAsManyLogitsAsTheLayersMemoryHolds) {
  constexpr auto kBf16 = spec::DType::kBf16;
  // Of 8 billion parameters: a batch of 128 reads its head once.
  const spec::ModelSpec large{.hidden = 4096,
                              .layers = 1,
                              .heads = 32,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .intermediate = 14336,
                              .vocab = 128256};
  std::byte* const nowhere = nullptr;
  EXPECT_GE(place_activations(large, kBf16, 1024, nowhere).logit_rows(), 128);
  EXPECT_EQ(place_activations(large, kBf16, 32, nowhere).logit_rows(), kLogitRowsMin);
  // At no price: the layers alone need as much.
  spec::ModelSpec no_head = large;
  no_head.vocab = 1;
  EXPECT_EQ(activation_bytes(large, kBf16, 1024), activation_bytes(no_head, kBf16, 1024));
  EXPECT_LE(place_activations(no_head, kBf16, 1024, nowhere).logit_rows(), 1024);
}

}  // namespace
}  // namespace heddle::engine
