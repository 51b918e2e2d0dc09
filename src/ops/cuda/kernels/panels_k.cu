#include "ops/cuda/kernels/panel_product.cuh"

// Blocks of 256 inputs.
HEDDLE_PANEL_KERNELS(panels_q4k, PanelsQ4K);
HEDDLE_PANEL_KERNELS(panels_q5k, PanelsQ5K);
HEDDLE_PANEL_KERNELS(panels_q6k, PanelsQ6K);
