# Copies FILES of SOURCE into COPIES and applies PATCH_FILE there.
file(REMOVE_RECURSE ${COPIES})
foreach(file ${FILES})
  configure_file(${SOURCE}/${file} ${COPIES}/${file} COPYONLY)
endforeach()
execute_process(COMMAND ${PATCH} -p1 --batch --forward --no-backup-if-mismatch --input=${PATCH_FILE}
                WORKING_DIRECTORY ${COPIES} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT code EQUAL 0)
  file(REMOVE_RECURSE ${COPIES})
  message(FATAL_ERROR "${PATCH_FILE} no longer applies: the source that it changes was edited. Make the same mistake in the "
                      "new source and write the patch again (tests/mutants/README.md).\n${output}")
endif()
