#include "spec/block_panels.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(BlockPanels, HaveTheBytesOfTheFile) {
  EXPECT_EQ(row_bytes(DType::kQ80, 64), 2 * 34);
  EXPECT_EQ(row_bytes(DType::kQ40, 64), 2 * 18);
  EXPECT_EQ(row_bytes(DType::kQ41, 64), 2 * 20);
  EXPECT_EQ(row_bytes(DType::kQ50, 64), 2 * 22);
  EXPECT_EQ(row_bytes(DType::kQ51, 64), 2 * 24);
  EXPECT_EQ(row_bytes(DType::kQ4K, 512), 2 * 144);
  EXPECT_EQ(row_bytes(DType::kQ5K, 512), 2 * 176);
  EXPECT_EQ(row_bytes(DType::kQ6K, 512), 2 * 210);
  EXPECT_EQ(row_bytes(DType::kMxfp4, 64), 2 * 17);
  EXPECT_EQ(row_bytes(DType::kF8, 256), 2 * 132);
  EXPECT_EQ(row_bytes(DType::kF8Both, 256), 2 * 132);
  EXPECT_EQ(row_bytes(DType::kBf16, 5), 10);
  EXPECT_EQ(matrix_bytes(DType::kQ80, 16, 32), 16 * 34);
  EXPECT_EQ(matrix_bytes(DType::kQ80, 17, 32), 32 * 34) << "whole panels";
  EXPECT_EQ(matrix_bytes(DType::kF32, 17, 3), 17 * 3 * 4);
}

ModelSpec model_with(DType format) {
  ModelSpec model{.layers = 2};
  model.formats.assign(format_count(model.layers), DType::kBf16);
  model.formats[format_index(Matrix::kV, 1)] = format;
  return model;
}

TEST(MatrixDtype, IsThatOfTheFileWhereTheImageIsStored) {
  const ModelSpec model = model_with(DType::kQ6K);
  EXPECT_EQ(matrix_dtype(model, DType::kStored, Matrix::kV, 1, 256), DType::kQ6K);
  EXPECT_EQ(matrix_dtype(model, DType::kStored, Matrix::kV, 0, 256), DType::kBf16);
  EXPECT_EQ(matrix_dtype(model, DType::kStored, Matrix::kEmbedding, 0, 256), DType::kBf16);
  EXPECT_EQ(matrix_dtype(ModelSpec{}, DType::kStored, Matrix::kDown, 7, 256), DType::kBf16);
}

TEST(MatrixDtype, OfFp8OnBothSidesIsFp8WhereInputsAreTakenAsTheyAre) {
  ModelSpec model = model_with(DType::kF8Both);
  EXPECT_EQ(matrix_dtype(model, DType::kStored, Matrix::kV, 1, 256), DType::kF8Both);
  take_inputs_as_they_are(model);
  EXPECT_EQ(model.formats, model_with(DType::kF8).formats);
}

TEST(MatrixDtype, DecodesBlocksThatAShardWouldCut) {
  const ModelSpec model = model_with(DType::kQ6K);
  EXPECT_EQ(matrix_dtype(model, DType::kStored, Matrix::kV, 1, 128), DType::kBf16);
  const ModelSpec small = model_with(DType::kQ41);
  EXPECT_EQ(matrix_dtype(small, DType::kStored, Matrix::kV, 1, 96), DType::kQ41);
  EXPECT_EQ(matrix_dtype(small, DType::kStored, Matrix::kV, 1, 80), DType::kBf16);
  const ModelSpec scaled = model_with(DType::kF8);
  EXPECT_EQ(matrix_dtype(scaled, DType::kStored, Matrix::kV, 1, 384), DType::kF8);
  EXPECT_EQ(matrix_dtype(scaled, DType::kStored, Matrix::kV, 1, 192), DType::kBf16);
}

TEST(MatrixDtype, IsTheImagesOtherwise) {
  const ModelSpec model = model_with(DType::kQ6K);
  EXPECT_EQ(matrix_dtype(model, DType::kI8, Matrix::kV, 1, 256), DType::kI8);
  EXPECT_EQ(matrix_dtype(model, DType::kI8, Matrix::kEmbedding, 0, 256), DType::kBf16);
  EXPECT_EQ(matrix_dtype(model, DType::kF32, Matrix::kEmbedding, 0, 256), DType::kF32);
}

}  // namespace
}  // namespace heddle::spec
