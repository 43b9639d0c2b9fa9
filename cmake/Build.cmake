# How everything of the project is built: language, warnings, sanitizers, compiler cache.
include_guard()

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
  endif()
  find_program(ATTEND_CCACHE ccache DOC "Compiler cache, used where it exists")
  if(ATTEND_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ATTEND_CCACHE})
  endif()
endif()

# Static archives go into the Python extension, too.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# attend_target_defaults(TARGET): C++20 without extensions, the warnings of the project, the sanitizers.
function(attend_target_defaults target)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(${target} PRIVATE -O2)  # a subproject of a build that names no type
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_STANDARD_REQUIRED ON)
  # -Wno-psabi: vectors cross only functions inside one unit, so that their calling convention is nobody else's.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-psabi)
  if(ATTEND_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ATTEND_SANITIZE)
    set(sanitize -fsanitize=${ATTEND_SANITIZE} -fno-sanitize-recover=all)
    target_compile_options(${target} PRIVATE ${sanitize} -fno-omit-frame-pointer)
    target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
    target_link_options(${target} PUBLIC ${sanitize})
  endif()
endfunction()
