# heddle_precompile(target set)
#
# The target's sources begin with the headers of cmake/precompiled/<set>.h, which are compiled once for all targets of
# one kind with equal options. To be called when the target has its options. This saves time and means nothing else: a
# source includes what it uses. The preset `dev` has HEDDLE_PRECOMPILE off, so that a source that does not fails there.
option(HEDDLE_PRECOMPILE "Compile headers that many sources include once" ON)
function(heddle_precompile target set)
  if(NOT HEDDLE_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(NOT options)
    set(options "")
  endif()
  string(MD5 key "${type}${options}")
  string(SUBSTRING ${key} 0 6 key)
  set(provider heddle_precompiled_${set}_${key})
  if(NOT TARGET ${provider})
    set(source ${PROJECT_BINARY_DIR}/precompiled/${provider}.cc)
    if(type STREQUAL "EXECUTABLE")  # Whose code is compiled with -fPIE.
      file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
      add_executable(${provider} EXCLUDE_FROM_ALL ${source})
      target_link_libraries(${provider} PRIVATE GTest::gtest)  # For its macros.
    else()
      file(CONFIGURE OUTPUT ${source} CONTENT "// The headers of cmake/precompiled/${set}.h.\n")
      add_library(${provider} OBJECT EXCLUDE_FROM_ALL ${source})
    endif()
    target_include_directories(${provider} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${provider} PRIVATE ${options} "SHELL:-Xclang -fno-pch-timestamp")
    target_precompile_headers(${provider} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${set}.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${provider})
endfunction()
