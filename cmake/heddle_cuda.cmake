# Kernels for CUDA devices. nvcc comes from PATH, from /usr/local/cuda, or from the toolkit's PyPI
# packages, which `./dev` puts into build/cuda. Without it everything is built all the
# same, but no kernels are, and the program says so where it would need one.
find_program(HEDDLE_NVCC NAMES nvcc
  HINTS ${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu13/bin /usr/local/cuda/bin)
set(HEDDLE_NVCC_VERSION_MIN 12.4)
set(HEDDLE_CUDA_DRIVER_MIN 0)
# An image runs on all GPUs of its major version, and the driver takes the one that fits: sm_80 on 8.x, sm_90 on 9.x,
# sm_100 on 10.x. It compiles PTX for what comes later. Files called ..._sm90a.cu have instructions of Hopper's own
# (wgmma) and are compiled for sm_90a in the place of sm_90; elsewhere their kernels fail. Without such
# instructions nvcc 13.0 makes the same code for both.
set(HEDDLE_CUDA_ARCHITECTURES -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -gencode arch=compute_90,code=compute_90)
set(HEDDLE_CUDA_NAMES "sm_80, sm_90 and later")
set(HEDDLE_NVCC_VERSION_BLACKWELL 12.8)
if(HEDDLE_SANITIZE)
  set(HEDDLE_CUDA_NOTE "no kernels: built with sanitizers, which do not watch GPUs")
elseif(HEDDLE_NVCC)
  execute_process(COMMAND ${HEDDLE_NVCC} --version OUTPUT_VARIABLE version RESULT_VARIABLE failed ERROR_QUIET)
  string(REGEX MATCH "V([0-9.]+)" _ "${version}")
  set(HEDDLE_NVCC_VERSION "${CMAKE_MATCH_1}")
  if(failed OR HEDDLE_NVCC_VERSION VERSION_LESS HEDDLE_NVCC_VERSION_MIN)
    set(HEDDLE_CUDA_NOTE "no kernels: ${HEDDLE_NVCC} is not nvcc ${HEDDLE_NVCC_VERSION_MIN} or later")
  else()
    set(HEDDLE_CUDA_KERNELS ON)
    # This nvcc knows Blackwell. It makes both of one PTX, and compresses images to less than a third.
    if(HEDDLE_NVCC_VERSION VERSION_GREATER_EQUAL HEDDLE_NVCC_VERSION_BLACKWELL)
      list(APPEND HEDDLE_CUDA_ARCHITECTURES -gencode arch=compute_90,code=sm_100 --compress-mode=size)
      set(HEDDLE_CUDA_NAMES "sm_80, sm_90, sm_100 and later")
    endif()
    set(HEDDLE_CUDA_NOTE "nvcc ${HEDDLE_NVCC_VERSION} for ${HEDDLE_CUDA_NAMES}")
    # A driver loads what the nvcc of its own major version made, and older ones'.
    file(WRITE ${CMAKE_BINARY_DIR}/nvcc_version.txt "${HEDDLE_NVCC_VERSION}\n")
    string(REGEX MATCH "^[0-9]+" major "${HEDDLE_NVCC_VERSION}")
    math(EXPR HEDDLE_CUDA_DRIVER_MIN "${major} * 1000")
  endif()
else()
  set(HEDDLE_CUDA_NOTE "no kernels: nvcc was not found when this was built")
endif()
if(HEDDLE_NVCC)
  # cuda.h, which only a test reads.
  cmake_path(GET HEDDLE_NVCC PARENT_PATH nvcc_folder)
  find_path(HEDDLE_CUDA_INCLUDE cuda.h HINTS ${nvcc_folder}/../include NO_DEFAULT_PATH)
  # cublasLt.h, which another test reads, where it and what it includes are of one release.
  find_path(HEDDLE_CUBLASLT_INCLUDE cublasLt.h HINTS ${nvcc_folder}/../include NO_DEFAULT_PATH)
  if(HEDDLE_CUBLASLT_INCLUDE)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${HEDDLE_CUBLASLT_INCLUDE} ${HEDDLE_CUBLASLT_INCLUDE}/cccl)
    check_cxx_source_compiles("#include <cublasLt.h>\nint main() {}" HEDDLE_CUBLASLT_HEADER)
    unset(CMAKE_REQUIRED_INCLUDES)
  endif()
endif()
message(STATUS "CUDA: ${HEDDLE_CUDA_NOTE}")

# heddle_cuda_image(target function FILES...)
#
# Compiles each of the .cu FILES and embeds the results in `target`, as the ModuleImage that the
# function of that qualified name returns; a header declares it. The files are compiled apart, so
# that what is local to one stays so.
function(heddle_cuda_image target function)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_image.cc)
  set(assembly "")
  set(symbols "")
  set(parts "")
  set(images "")
  set(names "")
  foreach(file ${ARGN})
    cmake_path(GET file STEM stem)
    string(APPEND names "      \"${stem}\",\n")
  endforeach()
  if(HEDDLE_CUDA_KERNELS)
    foreach(file ${ARGN})
      cmake_path(ABSOLUTE_PATH file)
      cmake_path(GET file STEM stem)
      set(architectures ${HEDDLE_CUDA_ARCHITECTURES})
      if(stem MATCHES "_sm90a$")
        list(TRANSFORM architectures REPLACE "arch=compute_90,code=sm_90$" "arch=compute_90a,code=sm_90a")
      endif()
      set(image ${CMAKE_CURRENT_BINARY_DIR}/${target}_${stem}.fatbin)
      # What ptxas says of registers and memory is kept beside the image, for tools/kernel_resources.py.
      add_custom_command(OUTPUT ${image} BYPRODUCTS ${image}.ptxas
        COMMAND ${PROJECT_SOURCE_DIR}/cmake/keep_errors.sh ${image}.ptxas
                ${HEDDLE_NVCC} -Xptxas -v -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 --expt-relaxed-constexpr -O3 -fatbin ${architectures}
                -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/tests -MD -MF ${image}.d -o ${image} ${file}
        DEPENDS ${file} DEPFILE ${image}.d
        COMMENT "Compiling kernels of ${stem}.cu" VERBATIM)
      string(MAKE_C_IDENTIFIER heddle_${target}_${stem} symbol)
      string(APPEND assembly "asm(R\"(.section .rodata, \"a\"\n.balign 16\n${symbol}: .incbin \"${image}\"\n"
                             "${symbol}_end: .byte 0\n.previous)\");\n")
      string(APPEND symbols "extern \"C\" const std::byte ${symbol}[];\nextern \"C\" const std::byte ${symbol}_end[];\n")
      string(APPEND parts "      {${symbol}, ${symbol}_end},\n")
      list(APPEND images ${image})
    endforeach()
  endif()
  string(REGEX REPLACE "::[^:]*$" "" namespace ${function})
  string(REGEX REPLACE "^.*::" "" name ${function})
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"// Made by cmake/heddle_cuda.cmake.
#include <vector>

#include \"device/cuda/module_image.h\"

@assembly@@symbols@
namespace @namespace@ {

const heddle::device::ModuleImage& @name@();
const heddle::device::ModuleImage& @name@() {
  static const std::vector<std::span<const std::byte>> parts = {
@parts@  };
  static const std::vector<const char*> names = {
@names@  };
  static const heddle::device::ModuleImage image{.parts = parts, .names = names, .note = \"@HEDDLE_CUDA_NOTE@\", .driver_min = @HEDDLE_CUDA_DRIVER_MIN@};
  return image;
}

}  // namespace @namespace@
")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${images}")
  target_sources(${target} PRIVATE ${source})
endfunction()

# heddle_use_cuda_emulator(target): the tests of `target` find the emulated driver where
# base/test_places.h says, and may include what tests/cuda_emulator offers them.
function(heddle_use_cuda_emulator target)
  if(TARGET ${target})
    target_link_libraries(${target} PRIVATE heddle_test_places)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    add_dependencies(${target} heddle_cuda_emulator heddle_nvml_emulator)
  endif()
endfunction()
