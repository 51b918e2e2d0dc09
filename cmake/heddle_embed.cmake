# heddle_embed_web(OUT FILE ...)
#
# Writes OUT, the source of gateway/web_files.h: names and texts of the files. A change to one of them
# makes the build configure again.
function(heddle_embed_web out)
  set(ENTRIES "")
  foreach(path IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    get_filename_component(name ${path} NAME)
    string(APPEND ENTRIES "    {\"${name}\", R\"heddle_file(${text})heddle_file\"},\n")
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/web_files.cc.in ${out} @ONLY)
endfunction()
