#include "ops/cuda/kernels/panel_product.cuh"

// Numbers of four bits (E2M1), of which 32 inputs share a power of two.
HEDDLE_PANEL_KERNELS(panels_mxfp4, PanelsMxfp4);
