# heddle_library(name SRCS ... APART ... HDRS ... DEPS ... LIBS ... TESTS ... PRECOMPILED set CONCURRENT OPTIMISED_TESTS)
#
# One folder, one library, called from src/<name>/CMakeLists.txt with file names relative to it.
# DEPS names every layer of ours the folder may include (heddle::x), and a layer that is not listed
# is rejected by tools/tidy.py. LIBS names external libraries, whose headers stay inside the folder's
# sources. TESTS become one binary, <name>_test. PRECOMPILED names a set of heddle_precompile, else
# it is `standard`. OPTIMISED_TESTS says that the tests compute much themselves. CONCURRENT says that
# threads or processes meet in them: `./dev tsan` builds and runs just those.
#
# Sources are compiled six at a time, as one unit, which halves the time of a whole build. So what
# they keep to themselves has names of its own; APART lists sources and tests where it has not, and those
# that are compiled with options of their own. The preset `dev` has HEDDLE_UNITY off and compiles each source by itself.
option(HEDDLE_UNITY "Compile the sources of a folder six at a time" ON)

# heddle_units(out name SRCS ... APART ...)
#
# Sets `out` to what is compiled for SRCS. Units name their sources from src/, so that they read the same in every
# checkout, and a compiler cache knows them again.
function(heddle_units out name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SRCS;APART")
  set(units "")
  set(text "")
  set(held 0)
  list(LENGTH arg_SRCS left)
  foreach(source ${arg_SRCS})
    math(EXPR left "${left} - 1")
    if(NOT HEDDLE_UNITY OR IS_ABSOLUTE ${source} OR source IN_LIST arg_APART)
      list(APPEND units ${source})
    else()
      cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src)
      string(APPEND text "#include \"${path}\"\n")
      math(EXPR held "${held} + 1")
    endif()
    if(held EQUAL 6 OR (held GREATER 0 AND left EQUAL 0))
      list(LENGTH units index)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${name}_${index}.cc)
      file(CONFIGURE OUTPUT ${unit} @ONLY CONTENT "${text}")
      list(APPEND units ${unit})
      set(text "")
      set(held 0)
    endif()
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

add_custom_target(concurrent_tests)
function(heddle_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CONCURRENT;OPTIMISED_TESTS" "PRECOMPILED" "SRCS;APART;HDRS;DEPS;LIBS;TESTS")
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED standard)
  endif()
  if(arg_SRCS)
    heddle_units(units heddle_${name} SRCS ${arg_SRCS} APART ${arg_APART})
    add_library(heddle_${name} STATIC ${units})
    set_target_properties(heddle_${name} PROPERTIES HEDDLE_SOURCES "${arg_SRCS}")
    target_include_directories(heddle_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(heddle_${name} PUBLIC ${arg_DEPS} PRIVATE heddle_warnings ${arg_LIBS})
    heddle_precompile(heddle_${name} ${arg_PRECOMPILED})
  else()
    add_library(heddle_${name} INTERFACE)
    target_include_directories(heddle_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(heddle_${name} INTERFACE ${arg_DEPS})
  endif()
  add_library(heddle::${name} ALIAS heddle_${name})
  heddle_headers_alone(${name} ${arg_LIBS})
  if(HEDDLE_BUILD_TESTS AND arg_TESTS)
    heddle_units(units ${name}_test SRCS ${arg_TESTS} APART ${arg_APART})
    add_executable(${name}_test ${units})
    target_link_libraries(${name}_test PRIVATE heddle_${name} heddle_warnings heddle_test_places ${arg_LIBS}
                          GTest::gtest_main GTest::gmock)
    if(HEDDLE_SANITIZE OR NOT arg_OPTIMISED_TESTS)
      target_compile_options(${name}_test PRIVATE ${HEDDLE_TEST_OPTIONS})
    endif()
    heddle_precompile(${name}_test test_${arg_PRECOMPILED})
    set(label unit)  # One each: gtest_discover_tests does not pass a list on.
    if(arg_CONCURRENT)
      set(label concurrent)
      add_dependencies(concurrent_tests ${name}_test)
    endif()
    gtest_discover_tests(${name}_test PROPERTIES LABELS ${label} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
