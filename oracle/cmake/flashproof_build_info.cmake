# Run by every build (cmake -P): writes fuzz/build_info.cpp anew when the commit or the compiler differ from what it
# says. Expects SOURCE_DIR, OUTPUT, VERSION, COMPILER, FLAGS, CUDA.
execute_process(COMMAND git -c safe.directory=* describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${SOURCE_DIR}
                OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  set(COMMIT unknown)
endif()
configure_file(${SOURCE_DIR}/fuzz/build_info.cpp.in ${OUTPUT} @ONLY)
