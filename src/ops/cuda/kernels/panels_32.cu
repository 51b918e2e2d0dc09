#include "ops/cuda/kernels/panel_product.cuh"

// Blocks of 32 inputs.
HEDDLE_PANEL_KERNELS(panels_q40, PanelsQ40);
HEDDLE_PANEL_KERNELS(panels_q41, PanelsQ41);
HEDDLE_PANEL_KERNELS(panels_q50, PanelsQ50);
HEDDLE_PANEL_KERNELS(panels_q51, PanelsQ51);
HEDDLE_PANEL_KERNELS(panels_q80, PanelsQ80);
