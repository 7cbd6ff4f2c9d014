# Third-party libraries, from the system only, each static where it can be: what is loaded into another program's process
# carries no foreign symbols, and the installed program needs nothing that was not needed to start.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

# lamina_find_library(name header): the target lamina_<name> for a C library that ships no CMake package.
function(lamina_find_library name header)
  find_path(LAMINA_${name}_INCLUDE ${header} REQUIRED)
  find_library(LAMINA_${name}_LIBRARY NAMES lib${name}.a ${name} REQUIRED)
  mark_as_advanced(LAMINA_${name}_INCLUDE LAMINA_${name}_LIBRARY)
  add_library(lamina_${name} INTERFACE)
  target_include_directories(lamina_${name} SYSTEM INTERFACE ${LAMINA_${name}_INCLUDE})
  target_link_libraries(lamina_${name} INTERFACE ${LAMINA_${name}_LIBRARY})
endfunction()

# fmt: compiled once here where its version is the one that fmt_library.cc was written for, header-only elsewhere.
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(lamina_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cc)
  target_include_directories(
    lamina_fmt SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  add_library(lamina_fmt INTERFACE)
  target_link_libraries(lamina_fmt INTERFACE fmt::fmt-header-only)
endif()

lamina_find_library(utf8proc utf8proc.h)
lamina_find_library(xxhash xxhash.h)
lamina_find_library(deflate libdeflate.h)
