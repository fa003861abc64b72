-- The rock of fastclock: the Lua module with the library compiled in.
rockspec_format = "3.0"
package = "fastclock"
version = "scm-1"
source = {
    -- A checkout is built in place, by `luarocks make`.
    url = "git+file://.",
}
description = {
    summary = "The kernel's own time, at the price of reading the CPU's counter",
    detailed = [[
        Reads the page of time-keeping data that Linux exports next to the vDSO, with the kernel's
        own algorithm: nanoseconds of realtime, monotonic, raw, boottime, tai and the coarse clocks.
        By FFI under LuaJIT, by a C module under Lua 5.1 to 5.4.
    ]],
    license = "MIT",
}
supported_platforms = { "unix" }
dependencies = { "lua >= 5.1, < 5.5" }
build = {
    type = "builtin",
    modules = {
        fastclock = "bindings/lua/fastclock.lua",
        ["fastclock.ffi"] = "bindings/lua/fastclock/ffi.lua",
        -- The library's files are those of CMakeLists.txt.
        ["fastclock.core"] = {
            sources = {
                "bindings/lua/fastclock/core.c",
                "core/cpu.c",
                "core/info.c",
                "core/kernel_page.c",
                "core/libc.c",
                "core/maps.c",
                "core/posix.c",
                "core/posix_time64.c",
                "core/prove.c",
                "core/read.c",
                "core/select.c",
                "core/skew.c",
                "core/sys.c",
                "core/text.c",
                "core/ticks.c",
                "core/timekeep.c",
                "core/timekeep_discipline.c",
                "core/timekeep_page.c",
                "core/vdso.c",
                "core/view.c",
            },
            incdirs = { "include" },
            -- Names that stay visible mean this copy, see fastclock.h.
            defines = { "FASTCLOCK_BUNDLED" },
        },
    },
    install = {
        -- LuaJIT reads its declarations from the header itself: fastclock/abi.h.
        lua = { ["fastclock.abi"] = "include/fastclock/abi.h" },
    },
}
