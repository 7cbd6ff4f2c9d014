# Flags of every target: `lamina_flags` is linked privately by all of them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(lamina_flags INTERFACE)
# A fused multiply-add happens only where it is written, so that equal plans give equal bits on every compiler.
target_compile_options(lamina_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(lamina_flags INTERFACE -Wno-unknown-warning-option)  # pragmas name what only g++ warns of
endif()

set(LAMINA_SANITIZE "" CACHE STRING "Sanitizers of every target, as in -fsanitize=")
if(LAMINA_SANITIZE)
  add_compile_options(-fsanitize=${LAMINA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LAMINA_SANITIZE})
endif()

# The presets, clones and branches of one machine share what they compile where ccache is installed. Paths count from
# the source folder, so that the place of a clone does not matter.
find_program(LAMINA_CCACHE ccache)
mark_as_advanced(LAMINA_CCACHE)
if(LAMINA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${LAMINA_CCACHE})
endif()

# lamina_precompile(target [LIGHT]): nlohmann/json.hpp and fmt take most of the time of a file that uses them; they are
# read once for all targets that are named here, and once more, with gtest and without optimisation, for LIGHT programs of
# tests. Not for kernels, which use no std:: templates.
function(lamina_precompile target)
  set(owner lamina_precompiled)
  if(ARGN STREQUAL "LIGHT")
    set(owner lamina_precompiled_tests)
  endif()
  if(NOT TARGET ${owner})
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cc "int main() {}\n")
    if(ARGN STREQUAL "LIGHT")
      add_executable(${owner} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled.cc)  # code of a program's kind
      target_link_libraries(${owner} PRIVATE GTest::gtest)
      target_precompile_headers(${owner} PRIVATE <gtest/gtest.h>)
      target_compile_options(${owner} PUBLIC -O0)
    else()
      add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
    endif()
    target_link_libraries(${owner} PRIVATE lamina_flags lamina_fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${owner} PRIVATE <fmt/format.h> <nlohmann/json.hpp> <filesystem> <functional>)
    # For ccache, which otherwise does not see what a precompiled header holds.
    target_compile_options(${owner} PUBLIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:${owner},INTERFACE_COMPILE_OPTIONS>)  # as the header was
endfunction()
