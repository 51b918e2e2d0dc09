#include "ops/cuda/kernels/panel_product.cuh"

// Experts whose matrices are rows of bfloat16.
HEDDLE_PANEL_KERNELS(experts_bf16, Bf16Rows);
