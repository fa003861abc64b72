#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Lua module in programs that have Lua in them: Neovim, nginx and HAProxy, from Debian.

Each program is started here, on the loopback interface and a free port, answers a bounded number of
requests, and is stopped again. Its readings are held between this process's own of the same clock.
Needs the rocks that bindings/lua/build has built, and Python's standard library alone.
"""

import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "build" / "lua"
REQUESTS = 300
DEADLINE_S = 20  # for a program to start, answer or stop; reached only if it hangs


def module_paths(lua):
    """The patterns by which the module that was built for `lua` is found: Lua files, C files."""
    abi = {"luajit": "5.1"}.get(lua, lua)
    return f"{BUILD}/{lua}/share/lua/{abi}/?.lua", f"{BUILD}/{lua}/lib/lua/{abi}/?.so"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fastclock-lua-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


# ---- Neovim --------------------------------------------------------------------------------------


class Neovim(Folder):
    SCRIPT = """
        local fastclock = require "fastclock"
        local first, second = fastclock.monotonic_ns(), fastclock.monotonic_ns()
        print(tostring(first):match "%d+", tostring(second):match "%d+", fastclock.info().serving)
        vim.cmd "qall!"
    """

    def run_neovim(self, *options, env=None):
        script = self.write("script.lua", self.SCRIPT)
        command = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", *options, f"+luafile {script}"]
        before = time.monotonic_ns()
        done = subprocess.run(
            command,
            env={**os.environ, "HOME": str(self.folder), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            text=True,
        )
        after = time.monotonic_ns()
        self.assertEqual(done.returncode, 0, done.stdout)
        words = done.stdout.split()
        self.assertEqual(len(words), 3, done.stdout)
        first, second = int(words[0]), int(words[1])
        self.assertLessEqual(before, first)
        self.assertLessEqual(first, second)
        self.assertLessEqual(second, after)
        self.assertNotEqual(words[2], "none")

    def test_reads_the_time_with_the_module_on_its_lua_path(self):
        lua_path, lua_cpath = module_paths("luajit")
        self.run_neovim(env={"LUA_PATH": f"{lua_path};;", "LUA_CPATH": f"{lua_cpath};;"})

    def test_reads_the_time_with_the_module_as_a_plugin(self):
        # A plugin keeps what belongs together in one folder `lua`, which Neovim's own loader finds.
        plugin = self.folder / "plugin" / "lua"
        lua_path, lua_cpath = (Path(path).parent for path in module_paths("luajit"))
        shutil.copytree(lua_path, plugin)
        shutil.copy(lua_cpath / "fastclock" / "core.so", plugin / "fastclock")
        self.run_neovim("--cmd", f"set runtimepath+={plugin.parent}")


# ---- Servers -------------------------------------------------------------------------------------


class Server(Folder):
    """A program that answers requests with two readings of monotonic_ns and what serves."""

    def start(self, command, env=None):
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.addCleanup(self.stop)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.assertIsNone(self.process.poll(), self.log.read_text())
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)
        self.fail(f"{command[0]} does not listen: {self.log.read_text()}")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def get(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            body = response.read().decode()
        finally:
            connection.close()
        self.assertEqual(response.status, 200, self.log.read_text())
        first, second, serving, who = body.split()
        return int(first), int(second), serving, who

    def check_answers(self):
        """Asks over and over; returns who answered: a process or a thread."""
        who_answered = set()
        for _ in range(REQUESTS):
            before = time.monotonic_ns()
            first, second, serving, who = self.get()
            after = time.monotonic_ns()
            # The end of one request is the beginning of the next: order across processes, too.
            self.assertLessEqual(before, first)
            self.assertLessEqual(first, second)
            self.assertLessEqual(second, after)
            self.assertNotEqual(serving, "none")
            who_answered.add(who)
        return who_answered


class Nginx(Server):
    # Its Lua module needs one of Debian's two LuaJITs, which cannot be installed beside the other:
    # unpacked into the build folder it disturbs nobody.
    PACKAGES = [
        "libnginx-mod-http-lua",
        "libnginx-mod-http-ndk",
        "lua-resty-core",
        "lua-resty-lrucache",
        "libluajit2-5.1-2",
    ]
    UNPACKED = BUILD / "nginx"

    @classmethod
    def setUpClass(cls):
        if cls.UNPACKED.exists():
            return
        with tempfile.TemporaryDirectory(prefix="fastclock-lua-", dir=BUILD) as folder:
            os.chmod(folder, 0o777)  # for the user that apt downloads as
            download = ["apt-get", "download", "-q", *cls.PACKAGES]
            if subprocess.run(download, cwd=folder).returncode != 0:
                # The lists of packages are missing or old.
                subprocess.run(["apt-get", "update", "-q"], check=True)
                subprocess.run(download, cwd=folder, check=True)
            root = Path(folder) / "root"
            for package in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
            root.rename(cls.UNPACKED)

    def found(self, pattern):
        paths = list(self.UNPACKED.glob(pattern))
        self.assertEqual(len(paths), 1, pattern)
        return paths[0]

    def test_answers_in_order_from_two_workers(self):
        self.port = free_port()
        lua_path, lua_cpath = module_paths("luajit")
        modules = "usr/lib/nginx/modules"
        directory = self.folder
        configuration = self.write(
            "nginx.conf",
            f"""
            load_module {self.found(f"{modules}/ndk_http_module.so")};
            load_module {self.found(f"{modules}/ngx_http_lua_module.so")};
            daemon off;
            {"user root;" if os.geteuid() == 0 else ""}
            worker_processes 2;
            pid {directory}/pid;
            error_log stderr notice;
            events {{ worker_connections 64; }}
            http {{
                access_log off;
                client_body_temp_path {directory}/body;
                proxy_temp_path {directory}/proxy;
                fastcgi_temp_path {directory}/fastcgi;
                uwsgi_temp_path {directory}/uwsgi;
                scgi_temp_path {directory}/scgi;
                lua_package_path "{lua_path};{self.UNPACKED}/usr/share/lua/5.1/?.lua;;";
                lua_package_cpath "{lua_cpath};;";
                init_by_lua_block {{ require "fastclock" }}
                server {{
                    listen 127.0.0.1:{self.port} reuseport;
                    location / {{
                        content_by_lua_block {{
                            local fastclock = require "fastclock"
                            local first = fastclock.monotonic_ns()
                            local second = fastclock.monotonic_ns()
                            ngx.say(tostring(first):match "%d+", " ", tostring(second):match "%d+",
                                " ", fastclock.info().serving, " ", ngx.worker.pid())
                        }}
                    }}
                }}
            }}
            """,
        )
        luajit = self.found("usr/lib/*/libluajit-5.1.so.2")
        self.start(
            ["/usr/sbin/nginx", "-p", str(directory), "-e", "stderr", "-c", str(configuration)],
            env={**os.environ, "LD_LIBRARY_PATH": str(luajit.parent)},
        )
        self.assertEqual(len(self.check_answers()), 2)


class HAProxy(Server):
    def lua_version(self):
        """Of the Lua that this HAProxy was built with."""
        features = subprocess.run(
            ["/usr/sbin/haproxy", "-vv"], stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        line = next(line for line in features.splitlines() if line.startswith("Built with Lua"))
        return line.split("Lua ")[-1].rpartition(".")[0]

    def test_answers_in_order_from_two_threads_with_a_state_each(self):
        self.port = free_port()
        lua_path, lua_cpath = module_paths(self.lua_version())
        script = self.write(
            "service.lua",
            """
            local fastclock = require "fastclock"
            core.register_service("time", "http", function(applet)
                local first, second = fastclock.monotonic_ns(), fastclock.monotonic_ns()
                local body = ("%d %d %s %d"):format(
                    first, second, fastclock.info().serving, core.thread)
                applet:set_status(200)
                applet:add_header("content-length", #body)
                applet:start_response()
                applet:send(body)
            end)
            """,
        )
        configuration = self.write(
            "haproxy.cfg",
            f"""
global
    nbthread 2
    lua-prepend-path {lua_path}
    lua-prepend-path {lua_cpath} cpath
    lua-load-per-thread {script}

defaults
    mode http
    timeout client {DEADLINE_S}s
    timeout server {DEADLINE_S}s
    timeout connect {DEADLINE_S}s

listen time
    bind 127.0.0.1:{self.port} shards by-thread
    http-request use-service lua.time
""",
        )
        self.start(["/usr/sbin/haproxy", "-db", "-f", str(configuration)])
        self.assertEqual(self.check_answers(), {"1", "2"})


if __name__ == "__main__":
    unittest.main()
