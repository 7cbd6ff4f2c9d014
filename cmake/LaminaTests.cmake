# lamina_unit_tests(folder [TSAN] [LIGHT] DEPS target…): one program lamina_test_<folder> of tests/<folder>/*_test.cc,
# registered as one test with the labels `unit` and `tiny`, and `tsan` where it tries threads. LIGHT: the tests' own code
# computes little, and is not optimised, because to optimise it takes longer than to run it. A folder without tests yet
# makes nothing.
add_custom_target(lamina_tsan)

function(lamina_unit_tests folder)
  cmake_parse_arguments(arg "TSAN;LIGHT" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  set(program lamina_test_${folder})
  set(labels unit tiny)
  add_executable(${program} ${sources})
  if(arg_TSAN)
    list(APPEND labels tsan)
    add_dependencies(lamina_tsan ${program})
  endif()
  target_link_libraries(${program} PRIVATE ${arg_DEPS} lamina_test_common lamina_flags)
  if(arg_LIGHT)
    lamina_precompile(${program} LIGHT)
    target_compile_options(${program} PRIVATE -O0)
  endif()
  add_test(NAME unit.${folder}
           COMMAND ${program} --gtest_brief=1 --gtest_output=json:${CMAKE_BINARY_DIR}/results/${program}.json
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(unit.${folder} PROPERTIES LABELS "${labels}" TIMEOUT 600)
endfunction()
