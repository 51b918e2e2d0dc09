# What `cmake --install` puts where, and the Debian package that ./dev package makes of it.
include(GNUInstallDirs)
install(TARGETS heddle RUNTIME)
# The program writes them from its own table of verbs.
set(heddle_texts ${PROJECT_BINARY_DIR}/texts)
install(CODE "
  file(MAKE_DIRECTORY \"${heddle_texts}\")
  foreach(text \"completions bash;heddle\" \"completions zsh;_heddle\" \"completions fish;heddle.fish\" \"manual;heddle.1\")
    list(GET text 0 words)
    list(GET text 1 name)
    separate_arguments(words)
    execute_process(COMMAND \"${PROJECT_BINARY_DIR}/heddle\" \${words}
                    OUTPUT_FILE \"${heddle_texts}/\${name}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
")
install(FILES ${heddle_texts}/heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${heddle_texts}/_heddle DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${heddle_texts}/heddle.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${heddle_texts}/heddle.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES schema/heddle.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/heddle)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench)
install(DIRECTORY deploy/grafana deploy/prometheus deploy/keda deploy/helm deploy/kubernetes deploy/slurm
        USE_SOURCE_PERMISSIONS DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy)
install(FILES deploy/heddle.service DESTINATION lib/systemd/system)
install(FILES deploy/heddle.yaml DESTINATION /etc/heddle)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the heddle maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves many language models from few accelerators")
set(CPACK_PACKAGE_DESCRIPTION "One OpenAI-compatible endpoint for models that share the memory of few accelerators,\n and for engines of others, which are suspended and resumed.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
# By what the program is linked with, as the machine that builds it has it.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# What the program loads when it fetches a model.
set(CPACK_DEBIAN_PACKAGE_DEPENDS libcurl4)
file(WRITE ${PROJECT_BINARY_DIR}/package/conffiles "/etc/heddle/heddle.yaml\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package/conffiles)
include(CPack)
