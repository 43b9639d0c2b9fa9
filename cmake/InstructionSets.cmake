# Instruction sets with kernels: names, processors and every -m flag of the project.
include_guard()

# What each set adds to the processor's baseline. The names are those of attend::isa and of ATTEND_ISA.
set(ATTEND_FLAGS_scalar "")
set(ATTEND_FLAGS_neon "")  # part of every AArch64 processor
set(ATTEND_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(ATTEND_FLAGS_avx512 ${ATTEND_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(ATTEND_FLAGS_avx512_bf16 ${ATTEND_FLAGS_avx512} -mavx512bf16)
set(ATTEND_FLAGS_amx_bf16 ${ATTEND_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(ATTEND_ISAS scalar avx2 avx512 avx512_bf16 amx_bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(ATTEND_ISAS scalar neon)
else()
  set(ATTEND_ISAS scalar)
endif()

set(ATTEND_INSTRUCTION_SETS "" CACHE STRING "Sets that kernels are compiled for, scalar among them; empty: ${ATTEND_ISAS}")
if(ATTEND_INSTRUCTION_SETS)
  foreach(isa IN LISTS ATTEND_INSTRUCTION_SETS)
    if(NOT isa IN_LIST ATTEND_ISAS)
      message(FATAL_ERROR "ATTEND_INSTRUCTION_SETS: expected sets of ${ATTEND_ISAS}, got ${isa}")
    endif()
  endforeach()
  if(NOT "scalar" IN_LIST ATTEND_INSTRUCTION_SETS)
    message(FATAL_ERROR "ATTEND_INSTRUCTION_SETS: expected scalar among them, got ${ATTEND_INSTRUCTION_SETS}")
  endif()
  set(ATTEND_ISAS ${ATTEND_INSTRUCTION_SETS})
endif()

# -ffp-contract=off: a kernel says fma() where it means it, so that every set and compiler rounds alike.
set(ATTEND_KERNEL_FLAGS -ffp-contract=off -fno-exceptions -fno-math-errno -fno-trapping-math -fvisibility=hidden)
# Optimised in every configuration: otherwise vectors live in memory and a test takes minutes. Under sanitizers, -O3 takes
# four times as long to compile and finds nothing more.
if(ATTEND_SANITIZE)
  list(APPEND ATTEND_KERNEL_FLAGS -O2)
else()
  list(APPEND ATTEND_KERNEL_FLAGS -O3)
endif()

# Lines are enough for a debugger here: full information of these units takes as long as their code.
list(APPEND ATTEND_KERNEL_FLAGS $<$<NOT:$<CONFIG:Release>>:-g1>)

# Before registers are allocated, GCC for AArch64 moves loads ahead of the sums that need them, and 2 of 24 sums into memory. What the
# loads wait for, processors of today see themselves; for x86-64, GCC does not try.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND ATTEND_FLAGS_neon -fno-schedule-insns)
endif()

# GCC 12 takes the undefined source operand of its own AVX-512 intrinsics for a mistake of ours.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND ATTEND_KERNEL_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

# attend_kernel_unit(TARGET FILE ISA): an object library of one kernel unit.
function(attend_kernel_unit target file isa)
  add_library(${target} OBJECT ${file})
  attend_target_defaults(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE ${ATTEND_KERNEL_FLAGS} ${ATTEND_FLAGS_${isa}})
endfunction()

# attend_add_kernels(TARGET): one object library per instruction set, attend_kernels_<isa>, linked into TARGET, and
# ATTEND_HAVE_<ISA> for the file that chooses among them.
function(attend_add_kernels target)
  foreach(isa IN LISTS ATTEND_ISAS)
    set(objects attend_kernels_${isa})
    attend_kernel_unit(${objects} kernels/${isa}.cpp ${isa})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    string(TOUPPER ${isa} upper)
    target_compile_definitions(${target} PRIVATE ATTEND_HAVE_${upper}=1)
  endforeach()
endfunction()

# attend_add_ladder_steps(TARGET): the steps of bench/ladder whose sets this build has, one object library each, attend_ladder_<step>,
# linked into TARGET, which is told by ATTEND_LADDER_HAS_<STEP>. Those that name no set are built for the baseline, as `scalar` is.
function(attend_add_ladder_steps target)
  set(isa_of_avx512 avx512)
  set(isa_of_amx amx_bf16)
  foreach(step naive tiled lanes avx512 amx amx_software)
    set(isa scalar)
    if(DEFINED isa_of_${step})
      set(isa ${isa_of_${step}})
    endif()
    if(isa IN_LIST ATTEND_ISAS)
      attend_kernel_unit(attend_ladder_${step} ${step}.cpp ${isa})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:attend_ladder_${step}>)
      string(TOUPPER ${step} upper)
      target_compile_definitions(${target} PRIVATE ATTEND_LADDER_HAS_${upper}=1)
    endif()
  endforeach()
endfunction()
