# SPDX-License-Identifier: MIT
"""Each program works under the library, gives the same answers, and is no slower; see conftest."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from conftest import bindings, environment, free_port, is_preloaded, run, server

HERE = Path(__file__).resolve().parent
POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
PYTHON = "/usr/bin/python3"
JEMALLOC = "libjemalloc.so.2"


# ---- PostgreSQL ----------------------------------------------------------------------------------


def test_pg_test_timing_sees_a_clock_that_never_goes_back(library, tmp_path, compare):
    def per_loop(preload):
        printed = run([POSTGRES / "pg_test_timing", "-d", "1"], preload)
        return float(re.search(r"Per loop time including overhead: ([\d.]+) ns", printed)[1])

    assert "clock_gettime" in bindings(
        [POSTGRES / "pg_test_timing", "-d", "1"], [library], tmp_path
    )
    # it ends with an error of its own where time goes back
    compare("PostgreSQL, pg_test_timing", lambda: per_loop([library]), lambda: per_loop([]))


@pytest.fixture(scope="module")
def databases(library, folder):
    """Two servers on copies of one database of a million rows: with the library and without."""
    account = {"user": "postgres", "group": "postgres", "extra_groups": []}
    base = folder / "postgres"
    base.mkdir()
    shutil.chown(base, "postgres", "postgres")
    run([POSTGRES / "initdb", "-D", base / "ours", "-A", "trust", "--no-sync"], cwd=base, **account)

    def start(name, preload):
        sockets = base / f"{name}-socket"
        sockets.mkdir()
        shutil.chown(sockets, "postgres", "postgres")
        command = [POSTGRES / "postgres", "-D", base / name, "-k", sockets]
        for setting in ("listen_addresses=", "fsync=off", "max_parallel_workers_per_gather=0"):
            command += ["-c", setting]

        def ready():
            asked = [POSTGRES / "pg_isready", "-q", "-h", sockets]
            return subprocess.run(asked, env=environment()).returncode == 0

        return server(command, preload, ready, user="postgres", cwd=base), sockets

    fill, sockets = start("ours", [])
    with fill:
        sql(sockets, "CREATE TABLE t AS SELECT generate_series(1, 1000000) AS x")
        sql(sockets, "VACUUM ANALYZE t")
    sockets.rename(base / "filled")
    run(["cp", "-a", base / "ours", base / "theirs"])
    with contextlib.ExitStack() as stack:
        ours, our_sockets = start("ours", [library])
        theirs, their_sockets = start("theirs", [])
        process = stack.enter_context(ours)
        stack.enter_context(theirs)
        assert is_preloaded(process.pid)
        yield our_sockets, their_sockets


def sql(sockets, command):
    return run(
        ["psql", "-X", "-q", "-A", "-t", "-h", sockets, "-U", "postgres", "-c", command, "postgres"]
    )


def test_postgres_explains_a_million_timed_rows_as_fast(databases, compare):
    query = "EXPLAIN (ANALYZE, TIMING ON, FORMAT JSON) SELECT sum(x) FROM t WHERE x % 2 = 0"

    def execution_time(sockets):
        plan = json.loads(sql(sockets, query))[0]
        assert plan["Plan"]["Actual Rows"] == 1
        assert plan["Plan"]["Plans"][0]["Actual Rows"] == 500000
        return plan["Execution Time"]

    ours, theirs = databases
    compare(
        "PostgreSQL, EXPLAIN (ANALYZE, TIMING ON) of a million rows",
        lambda: execution_time(ours),
        lambda: execution_time(theirs),
        rounds=5,
    )


def test_postgres_gives_the_same_answers(databases):
    queries = [
        "SELECT sum(x), count(*) FROM t",
        "SELECT now() = now(), statement_timestamp() <= clock_timestamp()",
        "SELECT date_trunc('day', timestamptz '2024-02-29 12:00Z' + interval '1 year')",
    ]
    for query in queries:
        assert len({sql(sockets, query) for sockets in databases}) == 1, query


def test_postgres_knows_what_time_it_is(databases):
    ours, _ = databases
    before = time.time()
    told = float(sql(ours, "SELECT extract(epoch FROM clock_timestamp())"))
    assert before <= told + 1e-6 and told <= time.time()


# ---- Redis ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def caches(library, folder):
    with contextlib.ExitStack() as stack:
        paths = []
        for name, preload in (("ours", [library]), ("theirs", [])):
            path = folder / f"redis-{name}"
            command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", ""]
            process = stack.enter_context(server(command, preload, path.exists, cwd=folder))
            if preload:
                assert is_preloaded(process.pid)
            paths.append(path)
        yield paths


def redis(path, *command):
    return run(["redis-cli", "-s", path, *command])


def test_redis_serves_as_many_requests(caches, compare):
    def seconds_per_request(path):
        printed = run(
            ["redis-benchmark", "-s", path, "-n", "30000", "-t", "get", "-P", "4", "--csv"]
        )
        return 1 / float(printed.splitlines()[-1].split(",")[1].strip('"'))

    ours, theirs = caches
    compare(
        "Redis, redis-benchmark",
        lambda: seconds_per_request(ours),
        lambda: seconds_per_request(theirs),
    )


def test_redis_gives_the_same_answers(caches):
    def answers(path):
        return [
            redis(path, "FLUSHALL"),
            redis(path, "SET", "a", "1"),
            redis(path, "SET", "short", "1", "PX", "20"),
            redis(path, "EVAL", "while redis.call('EXISTS', 'a') == 2 do end return 7", "0"),
            redis(path, "BLPOP", "nothing", "0.1"),
            redis(path, "GET", "short"),
        ]

    ours, theirs = (answers(path) for path in caches)
    assert ours == theirs
    assert ours[5] == "\n", "a key outlived its time"


def test_redis_counts_seconds_as_they_pass(caches):
    for path in caches:
        start = time.monotonic()
        redis(path, "SET", "long", "1", "EX", "1000")
        left = int(redis(path, "TTL", "long"))
        idle = int(redis(path, "OBJECT", "IDLETIME", "long"))
        passed = time.monotonic() - start
        # Redis rounds to seconds, and knows the time of an access to a second.
        assert 1000 - passed - 1 <= left <= 1000
        assert 0 <= idle <= passed + 2


def test_redis_knows_what_time_it_is(caches):
    before = time.time()
    seconds, microseconds = redis(caches[0], "TIME").split()
    assert before <= int(seconds) + (int(microseconds) + 1) / 1e6
    assert int(seconds) + int(microseconds) / 1e6 <= time.time()


# ---- nginx ---------------------------------------------------------------------------------------

NGINX = """
daemon off; error_log stderr; pid {folder}/pid; worker_processes 1; user root;
events {{ worker_connections 64; }}
http {{
    log_format times '$msec $request_time';
    access_log {folder}/log times;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ root {folder}; }}
        location /time {{ return 200 $msec; }}
    }}
}}
"""


@pytest.fixture(scope="module")
def webs(library, folder):
    with contextlib.ExitStack() as stack:
        addresses = []
        for name, preload in (("ours", [library]), ("theirs", [])):
            place = folder / f"nginx-{name}"
            place.mkdir()
            (place / "page").write_text("the same page\n" * 50)
            port = free_port()
            (place / "conf").write_text(NGINX.format(folder=place, port=port))
            command = ["nginx", "-c", place / "conf", "-p", place]

            def ready(port=port):
                try:
                    return urllib.request.urlopen(f"http://127.0.0.1:{port}/page").status == 200
                except OSError:
                    return False

            process = stack.enter_context(server(command, preload, ready))
            if preload:
                assert is_preloaded(process.pid)
            addresses.append((f"http://127.0.0.1:{port}", place))
        yield addresses


def test_nginx_serves_as_many_requests(webs, compare):
    def seconds_per_request(address):
        printed = run(["ab", "-q", "-k", "-c", "4", "-n", "10000", f"{address}/page"])
        assert re.search(r"Failed requests: +0\n", printed)
        return 1 / float(re.search(r"Requests per second: +([\d.]+)", printed)[1])

    (ours, _), (theirs, _) = webs
    compare("nginx, ab", lambda: seconds_per_request(ours), lambda: seconds_per_request(theirs))


def test_nginx_gives_the_same_answers(webs):
    pages = {urllib.request.urlopen(f"{address}/page").read() for address, _ in webs}
    assert len(pages) == 1


def test_nginx_knows_what_time_it_is(webs):
    address, place = webs[0]
    before = time.time()
    told = float(urllib.request.urlopen(f"{address}/time").read())
    after = time.time()
    # nginx updates its time when it wakes, and cuts off below a millisecond; its clock is coarse
    assert before - 0.02 <= told <= after
    for line in (place / "log").read_text().splitlines():
        assert float(line.split()[1]) >= 0


# ---- CPython -------------------------------------------------------------------------------------


def test_cpythons_own_test_of_its_clocks_passes(library, tmp_path):
    def outcome(preload):
        done = subprocess.run(
            [PYTHON, "-m", "unittest", "test.test_time"],
            env=environment(preload),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=100,
        )
        return done.returncode, re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)[1]

    ours, theirs = outcome([library]), outcome([])
    assert ours == theirs and ours[0] == 0 and int(ours[1]) > 30


def test_cpythons_clocks_are_as_quick(library, compare, tmp_path):
    def cost(preload):
        printed = run(
            [
                PYTHON,
                "-c",
                "import timeit; print(min(timeit.repeat('m()', 'from time import monotonic as m',"
                " number=20000, repeat=20)))",
            ],
            preload,
        )
        return float(printed)

    assert "clock_gettime" in bindings([PYTHON, "-c", "import time"], [library], tmp_path)
    compare("CPython, time.monotonic", lambda: cost([library]), lambda: cost([]))


# ---- Java ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java_classes(folder):
    classes = folder / "classes"
    run(
        ["ecj", "-proc:none", "-source", "11", "-target", "11", "-d", classes, HERE / "Clocks.java"]
    )
    return classes


def test_javas_clocks_are_right_and_as_quick(library, java_classes, compare, tmp_path):
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", java_classes, "Clocks"]

    def cost(preload):
        before = time.time()
        told = dict(line.split() for line in run(command, preload).splitlines())
        assert told["back"] == "0"
        assert int(before * 1000) <= int(told["millis"]) <= time.time() * 1000
        return float(told["cost_ns"])

    assert "clock_gettime" in bindings(command, [library], tmp_path)
    compare("Java, System.nanoTime", lambda: cost([library]), lambda: cost([]), rounds=2)


# ---- jemalloc ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["jemalloc", "fastclock"])
def test_jemalloc_preloaded_too(library, compare, first):
    """Its decay timers and its background thread read the clock from inside of malloc."""
    program = (
        "import time, hashlib\n"
        "start = time.perf_counter(); blocks = []; sum = hashlib.sha256()\n"
        "for i in range(60000):\n"
        "    blocks.append(bytearray(i % 5000)); blocks = blocks[-500:]\n"
        "    sum.update(bytes(blocks[0][:8])); time.monotonic()\n"
        "print(sum.hexdigest(), time.perf_counter() - start)\n"
    )
    options = {"env": {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:1"}}

    def cost(preload):
        digest, seconds = run([PYTHON, "-c", program], preload, **options).split()
        digests.add(digest)
        return float(seconds)

    digests = set()
    both = [JEMALLOC, library] if first == "jemalloc" else [library, JEMALLOC]
    compare(f"jemalloc, {first} first", lambda: cost(both), lambda: cost([JEMALLOC]))
    assert len(digests) == 1


# ---- Sanitizers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_program_built_with_a_sanitizer(library, folder, compare, compiler, sanitizer):
    program = folder / f"clocks-{compiler}-{sanitizer}"
    run(
        [
            *(compiler, "-O1", "-g", "-pthread", f"-fsanitize={sanitizer}"),
            *(HERE / "clocks.c", "-o", program),
        ]
    )
    # gcc's address sanitizer is a library, and insists on being the first
    runtime = run(["gcc", "-print-file-name=libasan.so"]).strip()
    first = [runtime] if (compiler, sanitizer) == ("gcc", "address") else []
    printed = set()

    def cost(preload):
        start = time.perf_counter()
        printed.add(run([program], preload))
        return time.perf_counter() - start

    compare(
        f"a program built by {compiler} with the {sanitizer} sanitizer",
        lambda: cost([*first, library]),
        lambda: cost(first),
    )
    assert printed == {"4 threads, 20000 reads each, 0 wrong\n"}


# ---- faketime ------------------------------------------------------------------------------------

FAKE = ["faketime", "2001-02-03 04:05:06"]
SHOW = ["date", "+%Y-%m-%d %H:%M"]
FAKED = "2001-02-03 04:05\n"


def test_faketime_around_the_library_keeps_its_time(fastclock):
    assert run([*FAKE, fastclock, "run", "--", *SHOW]) == FAKED == run([*FAKE, *SHOW])


def test_faketime_under_the_library_keeps_its_time(fastclock):
    assert run([fastclock, "run", "--", *FAKE, *SHOW]) == FAKED


@pytest.mark.parametrize("faketime_first", [True, False])
def test_faketime_in_either_order_is_no_slower(library, compare, faketime_first):
    """Whoever is first, the time is the faked one, and nothing recurses."""
    fake = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    program = (
        "import time; start = time.perf_counter()\n"
        "for i in range(20000): time.time()\n"
        "print(time.gmtime().tm_year, time.perf_counter() - start)\n"
    )
    years = set()

    def cost(preload):
        env = {"FAKETIME": "@2001-02-03 04:05:06", "DONT_FAKE_MONOTONIC": "1"}
        year, seconds = run([PYTHON, "-c", program], preload, env=env).split()
        years.add(year)
        return float(seconds)

    both = [fake, library] if faketime_first else [library, fake]
    compare(
        f"faketime, {'it' if faketime_first else 'fastclock'} first",
        lambda: cost(both),
        lambda: cost([fake]),
    )
    assert years == {"2001"}
