# lamina_kernel_library(target isa arithmetic SOURCES files… FLAGS flags…): compiles sources of src/kernels/cpu once more,
# for one rung of the ISA ladder and one arithmetic, as the object library <target>_<namespace>, and puts the objects into
# <target>. The sources see LAMINA_ISA_NAMESPACE, the names LAMINA_ISA and LAMINA_ARITHMETIC, one of LAMINA_ISA_PORTABLE,
# LAMINA_ISA_AVX2 and LAMINA_ISA_AVX512, and one of LAMINA_ARITHMETIC_F32, LAMINA_ARITHMETIC_BF16DOT and
# LAMINA_ARITHMETIC_F16CHUNK.
function(lamina_kernel_library target isa arithmetic)
  cmake_parse_arguments(arg "" "" "SOURCES;FLAGS" ${ARGN})
  set(namespace ${isa})
  if(NOT arithmetic STREQUAL "f32")
    set(namespace ${isa}_${arithmetic})
  endif()
  set(objects ${target}_${namespace})
  string(TOUPPER ${isa} upper_isa)
  string(TOUPPER ${arithmetic} upper_arithmetic)
  add_library(${objects} OBJECT ${arg_SOURCES})
  target_include_directories(${objects} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${objects} PRIVATE lamina_base lamina_flags)
  target_compile_options(${objects} PRIVATE ${LAMINA_KERNEL_OPTIMISATION} -fno-exceptions ${arg_FLAGS})
  target_compile_definitions(
    ${objects} PRIVATE LAMINA_ISA_NAMESPACE=${namespace} LAMINA_ISA=${isa} LAMINA_ISA_${upper_isa}=1
                       LAMINA_ARITHMETIC=${arithmetic} LAMINA_ARITHMETIC_${upper_arithmetic}=1)
  add_dependencies(lamina_kernel_objects ${objects})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endif()
endfunction()

# All rungs that the target processor family can have: every kernel in fp32, products in the other arithmetics too, those
# of attention in bf16dot.
# `lamina_kernel_objects` compiles them and nothing else.
function(lamina_kernel_isas target)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu)
  file(GLOB all CONFIGURE_DEPENDS ${folder}/*.cc)
  set(products ${folder}/gemm_linear.cc ${folder}/gemm_bwd_input.cc ${folder}/gemm_bwd_weight.cc ${folder}/head.cc
               ${folder}/peak.cc ${folder}/table.cc)
  set(pairs ${products} ${folder}/attention.cc ${folder}/attention_bwd.cc)
  add_custom_target(lamina_kernel_objects)
  set(portable -Wno-psabi)  # no vector crosses a call: nothing depends on that ABI
  lamina_kernel_library(${target} portable f32 SOURCES ${all} FLAGS ${portable})
  lamina_kernel_library(${target} portable bf16dot SOURCES ${pairs} FLAGS ${portable})
  lamina_kernel_library(${target} portable f16chunk SOURCES ${products} FLAGS ${portable})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512)
    if(LAMINA_SANITIZE)  # sanitizers watch the AVX2 rung, from the same sources: these would only compile long
      list(APPEND avx512 -O0 -fno-sanitize=all)
    endif()
    lamina_kernel_library(${target} avx2 f32 SOURCES ${all} FLAGS -mavx2 -mfma -mf16c)
    lamina_kernel_library(${target} avx512 f32 SOURCES ${all} FLAGS ${avx512})
    lamina_kernel_library(${target} avx512 bf16dot SOURCES ${pairs} FLAGS ${avx512} -mavx512bf16)
    lamina_kernel_library(${target} avx512 f16chunk SOURCES ${products} FLAGS ${avx512} -mavx512fp16)
  endif()
endfunction()
