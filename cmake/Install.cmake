# cmake --install: libraries, headers and the package that find_package(attend [COMPONENTS io]) reads.
include_guard()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attend)

install(TARGETS attend EXPORT attend)
install(EXPORT attend NAMESPACE attend:: DESTINATION ${package_dir} FILE attend-targets.cmake)
install(DIRECTORY include/attend TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp" PATTERN c.h PATTERN io.hpp EXCLUDE)
install(FILES LICENSE TYPE DOC)

if(ATTEND_BUILD_IO)
  install(TARGETS attend_io EXPORT attend-io)
  install(EXPORT attend-io NAMESPACE attend:: DESTINATION ${package_dir} FILE attend-io-targets.cmake)
  install(FILES include/attend/io.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attend)
  install(FILES cmake/FindLibZip.cmake DESTINATION ${package_dir})
endif()
if(ATTEND_BUILD_CLI)
  install(TARGETS attend_cli)
endif()

configure_package_config_file(
  cmake/attend-config.cmake.in ${PROJECT_BINARY_DIR}/attend-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0, a minor version may break: 0.1 serves requests for 0.1 alone.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attend-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attend-config.cmake ${PROJECT_BINARY_DIR}/attend-config-version.cmake
  DESTINATION ${package_dir})
