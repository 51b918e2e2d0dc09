# heddle_headers_alone(NAME LIBRARY ...)
#
# Compiles each header of the folder alone, as the target `headers`, which `./dev lint` builds. A header x.h beside
# x.cc, or else x_test.cc, is left out: tools/tidy.py holds that source to include it first. So are the
# headers of tests.
add_custom_target(headers)
function(heddle_headers_alone name)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  if(NOT folder STREQUAL name)
    return()  # A second library of one folder.
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  set(sources "")
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" "" stem ${PROJECT_SOURCE_DIR}/src/${header})
    if(NOT EXISTS ${stem}.cc AND NOT EXISTS ${stem}_test.cc AND NOT header MATCHES "/test_[^/]*$|_test\\.h$")
      string(REPLACE "/" "_" source ${header})
      set(source ${CMAKE_CURRENT_BINARY_DIR}/alone/${source}.cc)
      # Twice, so that what lacks #pragma once is found too.
      file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
      list(APPEND sources ${source})
    endif()
  endforeach()
  if(sources)
    add_library(${name}_headers OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${name}_headers PRIVATE heddle_${name} heddle_warnings ${ARGN})
    target_compile_options(${name}_headers PRIVATE -O0 -g0)
    add_dependencies(headers ${name}_headers)
  endif()
endfunction()
