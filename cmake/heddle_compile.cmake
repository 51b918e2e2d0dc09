# Warnings, sanitizers and the linker, for everything of ours.
add_library(heddle_warnings INTERFACE)
target_compile_options(heddle_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Wundef>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${HEDDLE_WERROR}>>:-Werror>)

# What is to be fast is what is tested, not the tests, which compile twice as fast this way.
set(HEDDLE_TEST_OPTIONS -O0)

# One reduction order everywhere: no contraction that differs between call sites or instruction
# sets, so that results are bit-identical wherever the source says the same thing.
add_compile_options(-ffp-contract=off -fno-math-errno)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  find_program(HEDDLE_LLD NAMES ld.lld-19 ld.lld)
  if(HEDDLE_LLD)
    add_link_options(-fuse-ld=${HEDDLE_LLD})
  endif()
endif()

if(HEDDLE_SANITIZE)
  add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # C libraries are called through their own prototypes; nothing is gained by checking their vptrs. What is read
    # through a null pointer or behind an object AddressSanitizer sees too, and these two checks of every access are
    # a third of the time to compile.
    add_compile_options(-fno-sanitize=vptr,function,null,object-size)
  endif()
  if(HEDDLE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio uses stand-alone fences, which TSan cannot model; its own locks still order handlers.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(HEDDLE_BUILD_FUZZERS)
  # Coverage of our libraries guides the fuzzers; their main comes with fuzz/CMakeLists.txt.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
