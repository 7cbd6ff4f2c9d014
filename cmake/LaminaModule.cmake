# lamina_module(name DEPS target…): the static library lamina_<name> of the folder src/<name>. DEPS are folders or
# libraries of lower layers; what a folder may use is exactly what is named here. A folder that holds headers only (or
# nothing yet) becomes an interface target.
function(lamina_module name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/ops/*.cc ${folder}/ref/*.cc)
  if(sources)
    add_library(lamina_${name} STATIC ${sources})
    target_link_libraries(lamina_${name} PUBLIC ${arg_DEPS} PRIVATE lamina_flags)
    target_include_directories(lamina_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  else()
    add_library(lamina_${name} INTERFACE)
    target_link_libraries(lamina_${name} INTERFACE ${arg_DEPS})
    target_include_directories(lamina_${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
endfunction()
