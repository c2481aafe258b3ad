"""A C and C++ toolchain of mlgo-clang, which compiles at -Oz with `-c opt`."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:cc_toolchain_config_lib.bzl", "feature", "flag_group", "flag_set", "tool_path")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/toolchains:cc_toolchain_config_info.bzl", "CcToolchainConfigInfo")

COMPILE = [
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
]

LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _options(name, actions, options, enabled):
    return feature(
        name = name,
        enabled = enabled,
        flag_sets = [flag_set(actions = actions, flag_groups = [flag_group(flags = options)])],
    )

def _mlgo_toolchain_config_impl(ctx):
    bin = ctx.attr.prefix + "/bin/"
    tools = {
        "ar": bin + "mlgo-llvm-ar",
        "cpp": bin + "mlgo-clang",
        "gcc": bin + "mlgo-clang",  # Bazel's name of the compiler of C and C++, and of the linker
        "gcov": "/bin/false",
        "ld": "/bin/false",
        "nm": "/bin/false",
        "objcopy": "/bin/false",
        "objdump": "/bin/false",
        "strip": "/usr/bin/strip",
    }
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        toolchain_identifier = "mlgo",
        compiler = "clang",
        host_system_name = "local",
        target_system_name = "local",
        target_cpu = "k8",
        target_libc = "unknown",
        abi_version = "unknown",
        abi_libc_version = "unknown",
        cxx_builtin_include_directories = ctx.attr.include_directories,
        tool_paths = [tool_path(name = name, path = path) for name, path in tools.items()],
        features = [
            # Bazel switches the feature `opt` on with `-c opt`.
            _options("opt", COMPILE, ["-Oz", "-DNDEBUG"], False),
            _options("reproducible", COMPILE, ["-no-canonical-prefixes", "-Wno-builtin-macro-redefined"], True),
            _options("cpp_runtime", LINK, ["-lstdc++", "-lm"], True),
        ],
    )

mlgo_toolchain_config = rule(
    implementation = _mlgo_toolchain_config_impl,
    attrs = {
        "include_directories": attr.string_list(),
        "prefix": attr.string(mandatory = True),
    },
    provides = [CcToolchainConfigInfo],
)
