# lamina_kernel_isa(target isa flags…): compiles src/kernels/cpu/*.cc once more, for one rung of the ISA ladder, as the
# object library <target>_<isa>, and puts the objects into <target>. The sources see LAMINA_ISA_NAMESPACE and one of
# LAMINA_ISA_PORTABLE, LAMINA_ISA_AVX2, LAMINA_ISA_AVX512.
function(lamina_kernel_isa target isa)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/*.cc)
  if(NOT sources)
    return()
  endif()
  set(objects ${target}_${isa})
  string(TOUPPER ${isa} upper)
  add_library(${objects} OBJECT ${sources})
  target_include_directories(${objects} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${objects} PRIVATE lamina_base lamina_flags)
  target_compile_options(${objects} PRIVATE ${LAMINA_KERNEL_OPTIMISATION} -fno-exceptions ${ARGN})
  target_compile_definitions(${objects} PRIVATE LAMINA_ISA_NAMESPACE=${isa} LAMINA_ISA_${upper}=1)
  add_dependencies(lamina_kernel_objects ${objects})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endif()
endfunction()

# All rungs that the target processor family can have. `lamina_kernel_objects` compiles them and nothing else.
function(lamina_kernel_isas target)
  add_custom_target(lamina_kernel_objects)
  lamina_kernel_isa(${target} portable -Wno-psabi)  # no vector crosses a call: nothing depends on that ABI
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    lamina_kernel_isa(${target} avx2 -mavx2 -mfma -mf16c)
    lamina_kernel_isa(${target} avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512)
  endif()
endfunction()
