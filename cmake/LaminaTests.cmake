# lamina_unit_tests(folder [TSAN] [LIGHT] [SHARDS n] DEPS target…): one program lamina_test_<folder> of tests/<folder>/*_test.cc,
# registered as one test with the labels `unit` and `tiny`, and `tsan` where it tries threads; as n tests that may run at
# the same time with SHARDS. LIGHT: the tests' own code computes little, and is not optimised, because to optimise it takes
# longer than to run it. A folder without tests yet makes nothing.
add_custom_target(lamina_tsan)

function(lamina_unit_tests folder)
  cmake_parse_arguments(arg "TSAN;LIGHT" "SHARDS" "DEPS" ${ARGN})
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
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(suffix "")
    if(arg_SHARDS GREATER 1)
      set(suffix _${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME unit.${folder}${suffix}
             COMMAND ${program} --gtest_brief=1
                     --gtest_output=json:${CMAKE_BINARY_DIR}/results/${program}${suffix}.json
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(
      unit.${folder}${suffix}
      PROPERTIES LABELS "${labels}" TIMEOUT 600 ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()
