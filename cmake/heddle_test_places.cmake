# The library heddle_test_places: what base/test_places.h declares. Tests link it; nothing else knows the folder in
# which it was built.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/test_places.cc CONTENT
"#include \"base/test_places.h\"

namespace heddle::places {

const char* const kSources = \"${PROJECT_SOURCE_DIR}\";
const char* const kCudaEmulator = \"$<$<TARGET_EXISTS:heddle_cuda_emulator>:$<TARGET_FILE:heddle_cuda_emulator>>\";
const char* const kNvmlEmulator = \"$<$<TARGET_EXISTS:heddle_nvml_emulator>:$<TARGET_FILE:heddle_nvml_emulator>>\";
const char* const kCublasltEmulator = \"$<$<TARGET_EXISTS:heddle_cublaslt_emulator>:$<TARGET_FILE:heddle_cublaslt_emulator>>\";
const char* const kOldCudaDriver = \"$<$<TARGET_EXISTS:heddle_cuda_old_driver>:$<TARGET_FILE:heddle_cuda_old_driver>>\";

}  // namespace heddle::places
")
add_library(heddle_test_places STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_places.cc)
target_include_directories(heddle_test_places PUBLIC ${PROJECT_SOURCE_DIR}/src)
