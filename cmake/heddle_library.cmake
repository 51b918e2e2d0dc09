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
# they keep to themselves has names of its own; APART lists sources and tests where it has not. The
# preset `dev` has HEDDLE_UNITY off and compiles each source by itself.
option(HEDDLE_UNITY "Compile the sources of a folder six at a time" ON)
function(heddle_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HEDDLE_UNITY} UNITY_BUILD_BATCH_SIZE 6)
endfunction()

add_custom_target(concurrent_tests)
function(heddle_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CONCURRENT;OPTIMISED_TESTS" "PRECOMPILED" "SRCS;APART;HDRS;DEPS;LIBS;TESTS")
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED standard)
  endif()
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(arg_SRCS)
    add_library(heddle_${name} STATIC ${arg_SRCS})
    target_include_directories(heddle_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(heddle_${name} PUBLIC ${arg_DEPS} PRIVATE heddle_warnings ${arg_LIBS})
    heddle_precompile(heddle_${name} ${arg_PRECOMPILED})
    heddle_unite(heddle_${name})
  else()
    add_library(heddle_${name} INTERFACE)
    target_include_directories(heddle_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(heddle_${name} INTERFACE ${arg_DEPS})
  endif()
  add_library(heddle::${name} ALIAS heddle_${name})
  heddle_headers_alone(${name} ${arg_LIBS})
  if(HEDDLE_BUILD_TESTS AND arg_TESTS)
    add_executable(${name}_test ${arg_TESTS})
    target_link_libraries(${name}_test PRIVATE heddle_${name} heddle_warnings ${arg_LIBS}
                          GTest::gtest_main GTest::gmock)
    target_compile_definitions(${name}_test PRIVATE HEDDLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    if(HEDDLE_SANITIZE OR NOT arg_OPTIMISED_TESTS)
      target_compile_options(${name}_test PRIVATE ${HEDDLE_TEST_OPTIONS})
    endif()
    heddle_precompile(${name}_test test_${arg_PRECOMPILED})
    heddle_unite(${name}_test)
    set(label unit)  # One each: gtest_discover_tests does not pass a list on.
    if(arg_CONCURRENT)
      set(label concurrent)
      add_dependencies(concurrent_tests ${name}_test)
    endif()
    gtest_discover_tests(${name}_test PROPERTIES LABELS ${label} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
