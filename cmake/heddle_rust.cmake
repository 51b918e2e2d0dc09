# The text library is Rust behind a C ABI: one static library, so that one copy of Rust's standard
# library is linked. Cargo decides what is stale, so the target always asks it.
set(HEDDLE_RUST_DIR ${PROJECT_SOURCE_DIR}/rust)
if(EXISTS ${HEDDLE_RUST_DIR}/Cargo.toml)
  find_program(HEDDLE_CARGO NAMES cargo REQUIRED)
  # Shared by every preset: Rust is built the same for all of them.
  set(HEDDLE_RUST_TARGET ${PROJECT_SOURCE_DIR}/build/rust)
  set(HEDDLE_RUST_LIB ${HEDDLE_RUST_TARGET}/release/libheddle_text.a)
  add_custom_target(heddle_rust_build
    COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${HEDDLE_RUST_TARGET}
            ${HEDDLE_CARGO} build --release --locked --quiet --manifest-path ${HEDDLE_RUST_DIR}/Cargo.toml
    BYPRODUCTS ${HEDDLE_RUST_LIB}
    USES_TERMINAL)
  add_library(heddle_rust STATIC IMPORTED GLOBAL)
  set_target_properties(heddle_rust PROPERTIES IMPORTED_LOCATION ${HEDDLE_RUST_LIB})
  add_dependencies(heddle_rust heddle_rust_build)
endif()
