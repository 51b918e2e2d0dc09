#include "ops/cuda/kernels/panel_product.cuh"

// FP8 with scales by 128 inputs.
HEDDLE_PANEL_KERNELS(panels_f8, PanelsF8);
