# How every file of the project is compiled: language, warnings, and the two rules that keep the meaning of arithmetic.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # kernels are built as shared libraries too
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)    # for clang-tidy

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Release keeps assertions (no NDEBUG): a broken invariant must stop a verdict. -g1 gives a crash its function names.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")

# A contracted a*b+c rounds once where the source says twice; bounds and predicted bits hold for the source only.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>")
if(FLASHPROOF_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

if(FLASHPROOF_SANITIZE)
  # Without recovery the first report ends the program, so that a test cannot pass over it.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitizers}>")
  add_link_options(${sanitizers})
endif()

if(FLASHPROOF_STATIC)
  add_link_options(-static-libstdc++ -static-libgcc -s)
endif()

# The GPU kernels are optional: CUDA Toolkit 12.0 or later is used where found and never installed.
set(FLASHPROOF_HAVE_CUDA OFF)
if(FLASHPROOF_CUDA)
  # sm_80 machine code runs on every 8.x chip, and its PTX on any later one; sm_90a has Hopper's wgmma and TMA, which
  # no other chip accepts, so its PTX would be dead weight.
  set(CMAKE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "GPU architectures")
  # CMake looks in PATH alone; NVIDIA's installers do not put nvcc there.
  find_program(FLASHPROOF_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(FLASHPROOF_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${FLASHPROOF_NVCC})
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.0: building without GPU kernels")
    else()
      find_package(CUDAToolkit REQUIRED)
      set(FLASHPROOF_HAVE_CUDA ON)
      set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
      set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")  # lines for compute-sanitizer; device assertions are kept too
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # nvcc's since 12.0; CMake 3.25 does not know it
      add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off,-Wall,-Wextra>")
    endif()
  endif()
endif()
