"""What the interpreter of a workspace does, seen from the other end of its socket."""

import io
import os
import signal
import struct
import subprocess

import pytest
from conftest import PYTHON, WORKER, needs

VERSION = subprocess.run(
    [PYTHON, "-c", "import sys; print(*sys.version_info[:3], sep='.')"], stdout=subprocess.PIPE, text=True, check=True
).stdout.strip()
NOBODY = "there is no user at this interpreter"
DESCRIPTORS = "sorted(int(fd) for fd in __import__('os').listdir('/proc/self/fd'))"


def png_size(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


# --- Start and frames


def test_ready_says_who_is_there(worker):
    assert worker.ready == {"protocol": 1, "python": VERSION, "pid": worker.process.pid, "preload_failed": []}


def test_modules_are_preloaded_and_missing_ones_are_named(start):
    worker = start(preload=["decimal", "no_such_module", "xml.dom"])
    assert worker.ready["preload_failed"] == ["no_such_module"]
    assert worker.value("import sys; [name in sys.modules for name in ('decimal', 'xml.dom')]") == "[True, True]"


def test_the_text_fits_into_one_argument():
    assert len(WORKER.read_bytes()) < 100_000


def test_it_ends_when_it_is_told_to(worker):
    worker.run("print('partial', end='')")
    worker.run("import threading; threading.Thread(target=__import__('time').sleep, args=(999,)).start()")
    worker.send("Q", {})
    assert worker.end() == (0, "", "")


def test_it_ends_when_the_other_side_closes(worker):
    worker.socket.shutdown(1)
    assert worker.end()[0] == 0


def test_half_a_frame_ends_it(worker):
    worker.send_raw(struct.pack("<IB", 100, ord("E")) + b'{"id"')
    worker.socket.shutdown(1)
    assert worker.end()[0] == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xffE",
        b"\0\0\0\0\0",
        struct.pack("<IB", 6, ord("E")) + b"hello",
        struct.pack("<IB", 3, ord("E")) + b"\xff\xff",
        struct.pack("<IB", 3, ord("E")) + b"[]",
        struct.pack("<IB", 3, ord("E")) + b"{}",
        struct.pack("<IB", 9, ord("E")) + b'{"id":1}',
        struct.pack("<IB", 20, ord("E")) + b'{"id":1,"code":123}',
        struct.pack("<IB", 38, ord("E")) + b'{"id":1,"code":"","max_value":"many"}',
        struct.pack("<IB", 3, ord("R")) + b"{}",
    ],
    ids=lambda data: repr(data),
)
def test_garbage_ends_it(worker, garbage):
    worker.send_raw(garbage)
    status, stdout, stderr = worker.end()
    assert (status, stdout) == (70, "")
    assert stderr == ""


def test_unknown_kinds_are_passed_over(worker):
    worker.send("Z", b"\xff\0anything")
    assert worker.value("1 + 1") == "2"


def test_a_dead_reader_ends_it(worker):
    worker.start("print('running'); import time; time.sleep(0.2); 1")
    worker.wait_for_stdout("running")
    worker.selector.unregister(worker.socket)
    worker.socket.close()
    assert worker.process.wait(60) == 0


def test_every_answer_has_the_id_of_its_request(worker):
    worker.last_id = 2**32 - 2
    outcome = worker.good("display(1)\n2")
    assert (outcome.id, outcome.kinds, outcome.texts, outcome.value) == (2**32 - 1, "TVD", ["1"], "2")
    assert outcome.elapsed_ms >= 0


def test_output_is_flushed_before_the_answer(worker):
    outcome = worker.good("import sys\nprint('a', end='')\nsys.stderr.write('b')\nNone")
    assert (outcome.stdout, outcome.stderr, outcome.kinds) == ("a", "b", "D")


def test_lines_come_while_the_cell_runs(worker):
    outcome = worker.interrupted("print('running')\nwhile True: pass")
    assert outcome.error["name"] == "KeyboardInterrupt"


def test_descriptors_do_not_grow(worker):
    before = worker.value(DESCRIPTORS)
    for at in range(1000):
        assert worker.value(f"{at} + 1") == str(at + 1)
    assert worker.value(DESCRIPTORS) == before


def test_the_control_descriptor_does_not_reach_other_programs(worker):
    code = """
import os, subprocess, sys
script = "import os; print([fd for fd in range(3, 20) if os.path.exists(f'/proc/self/fd/{fd}') and 'socket' in os.readlink(f'/proc/self/fd/{fd}')])"
subprocess.run([sys.executable, "-I", "-c", script], close_fds=False)
"""
    assert worker.good(code).stdout == "[]\n"


# --- Values


@pytest.mark.parametrize(
    "code, value, kind",
    [
        ("1 + 1", "2", "int"),
        ("x = 5\nx", "5", "int"),
        ("'text'", "'text'", "str"),
        ("(1)", "1", "int"),
        ("1; 2", "2", "int"),
        ("[1, (2,), {3}, {'a': []}, set(), frozenset(), frozenset({4}), (), {}]", None, "list"),
        ("[b'x', bytearray(b'y'), {1: 2}.keys(), {1: 2}.values(), {1: 2}.items(), {}.keys()]", None, "list"),
        ("x = [1]; x.append(x); x", "[1, [...]]", "list"),
        ("x = {}; x[1] = x; x", "{1: {...}}", "dict"),
        ("x = [1]; [x, x]", "[[1], [1]]", "list"),
        ("__import__('collections').Counter('aab')", "Counter({'a': 2, 'b': 1})", "collections.Counter"),
        ("import collections\ncollections.namedtuple('P', 'x y')(1, 2)", "P(x=1, y=2)", "P"),
        ("class A:\n  def __repr__(self): return 'an A'\nA()", "an A", "A"),
        ("class S(str): pass\nclass A:\n  def __repr__(self): return S('s')\nA()", "s", "A"),
        ("range", "<class 'range'>", "type"),
        ("None", None, None),
        ("x = 3", None, None),
        ("", None, None),
        ("# only this", None, None),
        ("1;", None, None),
        ("(1\n) ; # a comment", None, None),
        ("'é' ;", None, None),
        ("1 # not the end;", "1", "int"),
        ("';'", "';'", "str"),
        ("x = 1;", None, None),
        ("\ufeff1", "1", "int"),
        ("1\r\n2\r\n", "2", "int"),
        ("for _ in range(2): pass", None, None),
        ("__name__", "'__main__'", "str"),
        ("__import__('sys').argv", "['']", "list"),
    ],
)
def test_the_last_expression_is_the_value(shared, code, value, kind):
    if kind == "list" and value is None:
        value = repr(eval(code))
    outcome = shared.good(code)
    assert (outcome.value, outcome.type) == (value, kind)


def test_underscore_is_the_last_value(worker):
    worker.run("41")
    assert worker.value("_ + 1") == "42"
    worker.run("None")
    worker.run("43;")
    assert worker.value("_") == "42"


def test_variables_last(worker):
    worker.run("import math\ndef double(x): return 2 * x\ntotal = 20")
    assert worker.value("double(total) + math.floor(2.5)") == "42"


def test_nothing_is_executed_if_the_end_does_not_compile(worker):
    assert worker.run("print('ran')\n(yield)").error["name"] == "SyntaxError"
    assert worker.run("print('ran')\n1 = 2").stdout == ""


def test_future_annotations_last(worker):
    worker.run("from __future__ import annotations")
    assert worker.value("def f(x: undefined): pass\nf.__annotations__") == "{'x': 'undefined'}"
    worker.reset()
    assert worker.run("def f(x: undefined): pass").error["name"] == "NameError"


@pytest.mark.parametrize(
    "code, total",
    [
        ("list(range(10_000_000))", "list has 10000000 items"),
        ("'x' * 1_000_000_000", "str has 1000000000 items"),
        ("bytes(1_000_000_000)", "bytes has 1000000000 items"),
        ("dict.fromkeys(range(3_000_000))", "dict has 3000000 items"),
        ("[['x' * 100_000_000] * 100] * 100", "list has 100 items"),
        ("import collections; collections.OrderedDict.fromkeys(range(1_000_000))", "OrderedDict has 1000000 items"),
        ("import collections; collections.deque(range(3_000_000))", "deque has 3000000 items"),
    ],
)
def test_huge_values_are_cut_without_being_written_out(worker, code, total):
    peak = "__import__('resource').getrusage(0).ru_maxrss"
    worker.run("import resource, collections; made = None")
    worker.good("made = " + code if ";" not in code else code.replace("; ", "; made = "))
    before = int(worker.value(peak))
    outcome = worker.good("made")
    assert int(worker.value(peak)) - before < 20_000
    assert len(outcome.value.encode()) <= 16384 and total in outcome.value
    assert len(outcome.value) > 10_000


def test_values_are_bounded_in_bytes(worker):
    for limit in (0, 1, 50, 1000):
        value = worker.value("'é' * 5000", max_value=limit)
        assert len(value.encode()) <= limit
    assert worker.value("'é' * 20", max_value=42) == repr("é" * 20)


def test_containers_that_are_larger_than_their_repr_start_as_usual(worker):
    worker.run("import collections")
    value = worker.value("collections.Counter(range(100_000))", max_value=300)
    assert value.startswith("Counter({0: 1, 1: 1,") and "Counter has 100000 items" in value


@pytest.mark.parametrize(
    "raised, said",
    [
        ("ValueError('no')", "ValueError: no"),
        ("MemoryError()", "MemoryError"),
        ("SystemExit(3)", "SystemExit: sys.exit(3)"),
        ("GeneratorExit()", "GeneratorExit"),
        ("type('E', (Exception,), {'__str__': lambda self: 1 / 0})()", "E"),
    ],
)
def test_a_repr_that_raises_is_reported_in_the_value(worker, raised, said):
    code = f"class A:\n  def __repr__(self): raise {raised}\n"
    assert f"the repr of this A raised {said}" in worker.value(code + "A()")
    assert f"raised {said}" in worker.value("[A()]")
    assert f"raised {said}" in worker.good("display(A())").texts[0]


def test_other_bad_reprs(worker):
    assert "returned non-string" in worker.value("class A:\n  def __repr__(self): return 1\nA()")
    assert "RecursionError" in worker.value("x = []\nfor _ in range(100_000): x = [x]\nx")
    worker.run(
        "class M(type):\n  __module__ = property(lambda c: 1 / 0)\n  __hash__ = None\nclass A(metaclass=M): pass"
    )
    assert worker.good("A()").kinds == "VD"


def test_a_repr_that_hangs_is_interrupted(worker):
    code = "class A:\n  def __repr__(self):\n    print('running')\n    while True: pass\nA()"
    outcome = worker.interrupted(code)
    assert (outcome.kinds, outcome.error["name"]) == ("XD", "KeyboardInterrupt")
    assert worker.value("1") == "1"


def test_surrogates_are_written_out(worker):
    outcome = worker.good(
        "print('\\ud800 é')\ndisplay('\\udfff')\nclass A:\n  def __repr__(self): return '\\ud83d!'\nA()"
    )
    assert (outcome.stdout, outcome.texts, outcome.value) == ("\\ud800 é\n", ["'\\udfff'"], "\\ud83d!")
    assert worker.run("raise ValueError('\\ud800')").error["message"] == "\\ud800"
    assert worker.run("E = type('Né', (Exception,), {}); raise E").error["name"] == "Né"


# --- Errors


def test_tracebacks_show_the_lines_of_the_cells(worker):
    worker.run("# first\ndef divide(a, b):\n    return a / b")
    error = worker.run("x = 1\ndivide(x, 0)").error
    lines = [line for line in error["traceback"].splitlines() if set(line.strip()) - set("~^")]
    assert (error["name"], error["message"]) == ("ZeroDivisionError", "division by zero")
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 2, in <module>',
        "    divide(x, 0)",
        '  File "<cell 1>", line 3, in divide',
        "    return a / b",
        "ZeroDivisionError: division by zero",
    ]


def test_frames_of_libraries_stay_and_those_of_the_worker_go(worker):
    traceback = worker.run("import json\njson.loads('{')").error["traceback"]
    assert "decoder.py" in traceback and "<string>" not in traceback
    code = "class A:\n  def __repr__(self): raise KeyboardInterrupt\ndisplay(A())"
    traceback = worker.run(code).error["traceback"]
    assert "<string>" not in traceback and "in display" not in traceback and "in __repr__" in traceback


@pytest.mark.parametrize(
    "code, line, caret",
    [("x = = 1", "x = = 1", True), ("a = 1\nreturn a", "return a", False), ("if True:\npass", "pass", True)],
)
def test_syntax_errors_show_the_place(worker, code, line, caret):
    error = worker.run(code).error
    assert error["name"] in ("SyntaxError", "IndentationError")
    assert error["traceback"].startswith('  File "<cell 1>", line ') and f"\n    {line}\n" in error["traceback"]
    assert ("^" in error["traceback"]) or not caret


def test_code_that_no_compiler_takes(worker):
    assert "null bytes" in worker.run("x = '\0'").error["message"]
    assert worker.run("x = '\ud800'").error["name"] == "UnicodeEncodeError"
    assert worker.run("(" * 5000).error["name"] in ("SyntaxError", "MemoryError", "RecursionError")
    assert worker.value("1") == "1"


def test_chained_exceptions_are_kept(worker):
    error = worker.run("try:\n  1 / 0\nexcept Exception as e:\n  raise KeyError('k') from e").error
    assert error["name"] == "KeyError"
    assert "direct cause" in error["traceback"] and "ZeroDivisionError: division by zero" in error["traceback"]
    error = worker.run("def f():\n  try:\n    1 / 0\n  except Exception:\n    [][0]\nf()").error
    assert "During handling" in error["traceback"] and "line 3, in f" in error["traceback"]


def test_exceptions_that_contain_themselves(worker):
    error = worker.run("a, b = ValueError('a'), ValueError('b')\na.__context__, b.__context__ = b, a\nraise a").error
    assert (error["name"], error["message"]) == ("ValueError", "a")


def test_recursion_is_shown_shortly(worker):
    for code in ("def f(): f()\nf()", "def f(): g()\ndef g(): f()\nf()", "def f(): exec('f()')\nf()"):
        error = worker.run(code).error
        assert error["name"] == "RecursionError"
        assert "calls in the middle of a long chain are left out" in error["traceback"]
        assert len(error["traceback"]) < 8000
        assert worker.value("1") == "1"


def test_deep_recursion_with_a_high_limit(worker):
    worker.run("import sys; sys.setrecursionlimit(10**6)")
    assert worker.run("def f(n): return f(n + 1) if n < 20_000 else 1 / 0\nf(0)").error["name"] == "ZeroDivisionError"
    assert worker.value("1") == "1"


def test_a_low_recursion_limit_lasts_no_longer_than_the_cell(worker):
    worker.run("import sys; sys.setrecursionlimit(30)")
    assert worker.run("1 / 0").error["name"] == "ZeroDivisionError"
    assert int(worker.value("sys.getrecursionlimit()")) >= 1000


def test_long_tracebacks_lose_their_middle(worker):
    error = worker.run("raise ValueError('start' + 'x' * 100_000 + 'end')").error
    assert len(error["traceback"].encode()) <= 16384
    assert "ValueError: start" in error["traceback"] and error["traceback"].endswith("end")
    assert "bytes are left out" in error["traceback"]
    assert len(error["message"].encode()) <= 4096 and error["message"].startswith("startxxx")


def test_an_error_that_cannot_be_told(worker):
    error = worker.run("class E(Exception):\n  def __str__(self): 1 / 0\nraise E").error
    assert (error["name"], error["message"]) == ("E", "(it has no readable message)")
    assert "line 3, in <module>" in error["traceback"]
    code = "class E(Exception):\n  def __str__(self):\n    print('running')\n    while True: pass\nraise E"
    assert worker.interrupted(code).error["name"] == "E"
    assert worker.value("1") == "1"


@pytest.mark.parametrize(
    "code, name, message",
    [
        ("import sys; sys.exit()", "SystemExit", "sys.exit() was called; the interpreter goes on"),
        ("import sys; sys.exit(3)", "SystemExit", "sys.exit(3) was called; the interpreter goes on"),
        ("import sys; sys.exit('bye')", "SystemExit", "sys.exit('bye') was called; the interpreter goes on"),
        ("exit(2)", "SystemExit", "sys.exit(2) was called; the interpreter goes on"),
        ("quit()", "SystemExit", "sys.exit() was called; the interpreter goes on"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", "the code was interrupted"),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("raise MemoryError('big')", "MemoryError", "big"),
        ("raise RecursionError('deep')", "RecursionError", "deep"),
        ("raise BaseException('base')", "BaseException", "base"),
        ("import asyncio; raise asyncio.CancelledError('c')", "CancelledError", "c"),
        ("raise StopIteration(1)", "StopIteration", "1"),
    ],
)
def test_nothing_that_is_raised_ends_the_interpreter(shared, code, name, message):
    shared.run("kept = 7")
    outcome = shared.run(code)
    assert (outcome.error["name"], outcome.error["message"], outcome.kinds) == (name, message, "XD")
    assert shared.value("kept") == "7"


def test_memory_is_free_after_a_memory_error(worker):
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, -1))
def fill():
    held = []
    while True:
        held.append(bytearray(10 << 20))
fill()
"""
    for _ in range(3):
        error = worker.run(code).error
        assert error["name"] == "MemoryError" and "in fill" in error["traceback"]
    assert worker.value("len(bytearray(300 << 20))") == str(300 << 20)


@pytest.mark.parametrize(
    "code, name, said",
    [
        ("input()", "EOFError", "input() cannot be used; put the values in the code"),
        ("input('name? ')", "EOFError", "input() cannot be used"),
        ("import getpass; getpass.getpass()", "EOFError", "getpass() cannot be used"),
        ("import sys; sys.stdin.read()", "EOFError", "sys.stdin cannot be used"),
        ("import sys; sys.stdin.readline()", "EOFError", "sys.stdin cannot be used"),
        ("import sys; sys.stdin.buffer.read(1)", "EOFError", "sys.stdin cannot be used"),
        ("import sys\nfor line in sys.stdin: pass", "EOFError", "sys.stdin cannot be used"),
        ("breakpoint()", "RuntimeError", "breakpoint() cannot be used"),
        ("import pdb; pdb.set_trace()\nx = 1", "RuntimeError", "pdb cannot be used"),
    ],
)
def test_what_needs_a_user_says_that_there_is_none(shared, code, name, said):
    error = shared.run(code).error
    assert error["name"] == name and error["message"].startswith(NOBODY) and said in error["message"]
    assert shared.value("1") == "1"


def test_exit_says_what_it_does(worker):
    assert "does not end this interpreter" in worker.value("exit")
    assert worker.value("__import__('os').read(0, 1)") == "b''"


def test_doctest_still_works(worker):
    code = 'def f():\n  """\n  >>> f()\n  3\n  """\n  return 3\nimport doctest; doctest.testmod()'
    assert worker.value(code) == "TestResults(failed=0, attempted=1)"


# --- Top-level await


def test_top_level_await(shared):
    assert shared.value("import asyncio\nasync def f(): return 6\nawait f() * 7") == "42"
    code = "async def numbers():\n  yield 1\n  yield 2\nfound = []\nasync for n in numbers(): found.append(n)\nfound"
    assert shared.value(code) == "[1, 2]"
    code = "class C:\n  async def __aenter__(self): return 5\n  async def __aexit__(self, *a): pass\n"
    assert shared.value(code + "async with C() as x: y = x\ny") == "5"
    assert shared.value("[n async for n in numbers()]") == "[1, 2]"
    assert shared.good("await f();").value is None


def test_the_event_loop_lasts(worker):
    worker.run("import asyncio\nloop = asyncio.get_running_loop() if False else None\nawait asyncio.sleep(0)")
    worker.run(
        "async def late():\n  await asyncio.sleep(0.01)\n  return 'late'\nasync def go(): return"
        " asyncio.create_task(late())"
    )
    worker.run("task = await go()")
    assert worker.value("await task") == "'late'"
    assert worker.value("asyncio.run(late())") == "'late'"
    assert worker.value("await late()") == "'late'"
    worker.run("asyncio.get_event_loop().close()")
    assert worker.value("await late()") == "'late'"


def test_errors_in_coroutines_show_the_cell_only(worker):
    traceback = worker.run("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  1 / 0\nawait f()").error[
        "traceback"
    ]
    assert "base_events" not in traceback and 'File "<cell 1>", line 4, in f' in traceback


def test_an_interrupted_coroutine_does_not_go_on(worker):
    worker.run(
        "import asyncio\nasync def f():\n  global said\n  asyncio.get_running_loop().call_soon(print, 'running')\n "
        " await asyncio.sleep(999)\n  said = 1"
    )
    error = worker.interrupted("await f()").error
    assert error["name"] == "KeyboardInterrupt" and 'File "<cell 1>", line 5, in f' in error["traceback"]
    assert worker.value("await asyncio.sleep(0, 'next')") == "'next'"
    assert worker.value("len(asyncio.all_tasks(asyncio.get_event_loop_policy().get_event_loop()))") == "0"


# --- Interrupts


def test_sigint_between_cells_is_ignored(worker):
    for _ in range(200):
        worker.interrupt()
    assert worker.value("1 + 1") == "2"
    worker.interrupt()
    worker.run("x = 1")
    worker.interrupt()
    assert worker.reset().kinds == "D"


def test_sigint_while_modules_are_loaded_is_ignored(start, tmp_path):
    (tmp_path / "slow.py").write_text("import os\nprint('loading')\nwhile not os.path.exists('go'): pass")
    worker = start(preload=["slow"], wait=False)
    worker.wait_for_stdout("loading\n")
    worker.interrupt()
    (tmp_path / "go").touch()
    kind, payload = worker.frame()
    assert kind == "R" and b'"preload_failed":[]' in payload
    assert worker.value("1") == "1"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(999)",
        "import threading; threading.Event().wait()",
        "import subprocess; subprocess.run(['sleep', '999'])",
        "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
        "while True: display(1)",
        "import asyncio; asyncio.run(asyncio.sleep(999))",
    ],
)
def test_sigint_during_a_cell_raises(worker, code):
    worker.run("kept = 7")
    outcome = worker.interrupted("print('running')\n" + code)
    assert outcome.error["name"] == "KeyboardInterrupt"
    assert outcome.error["message"] == "the code was interrupted"
    assert "<cell 2>" in outcome.error["traceback"]
    assert worker.value("kept") == "7"


def test_a_swallowed_interrupt_can_be_repeated(worker):
    worker.start(
        "import time\ntry:\n  print('first')\n  time.sleep(999)\nexcept BaseException: print('second')\ntime.sleep(999)"
    )
    worker.wait_for_stdout("first\n")
    worker.interrupt()
    worker.wait_for_stdout("second\n")
    worker.interrupt()
    assert worker.outcome().error["name"] == "KeyboardInterrupt"


def test_a_replaced_handler_is_put_back(worker):
    for handler in ("SIG_IGN", "SIG_DFL", "default_int_handler"):
        worker.run(f"import signal; signal.signal(signal.SIGINT, signal.{handler})")
        worker.interrupt()
        assert worker.interrupted("print('running')\nwhile True: pass").error["name"] == "KeyboardInterrupt"
    worker.run("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])")
    assert worker.interrupted("print('running')\nwhile True: pass").error["name"] == "KeyboardInterrupt"


def test_interrupts_at_any_moment_leave_the_protocol_whole(worker):
    """SIGINT from a thread of the interpreter itself, without a pause, through the ends of many short cells."""
    worker.run("""
import os, signal, threading, time
stop = False
def shoot():
    while not stop:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.00005)
threading.Thread(target=shoot, daemon=True).start()
""")
    kinds = set()
    for at in range(500):
        outcome = worker.run(f"display({at})\n{at}")
        kinds.add(outcome.kinds)
        assert outcome.kinds[-1] == "D" and (outcome.error is None or outcome.error["name"] == "KeyboardInterrupt")
    while worker.run("stop = True").error:
        pass
    assert worker.value("1") == "1"
    assert len(kinds) > 1, "no cell was ever hit"


def test_trace_functions_last_no_longer_than_the_cell(worker):
    code = "import sys\ndef trace(*a):\n  raise ValueError('traced')\nsys.settrace(trace); sys.setprofile(trace)"
    worker.run(code)
    assert worker.value("sys.gettrace(), sys.getprofile()") == "(None, None)"


# --- Surroundings


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.close(1); os.close(2)",
        "import os; os.close(0); os.close(1); os.close(2)",
        "import os; null = os.open('/dev/null', 1); os.dup2(null, 1); os.dup2(null, 2)",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys, io; sys.stdout = sys.stderr = io.StringIO()",
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; del sys.stdout, sys.stderr, sys.stdin",
        (
            "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stderr ="
            " io.TextIOWrapper(sys.stderr.buffer)"
        ),
        "import sys; sys.stdout.detach(); sys.stderr.detach()",
        (
            "import sys; sys.stdout.reconfigure(encoding='ascii', errors='strict');"
            " sys.stderr.reconfigure(errors='strict')"
        ),
        "import sys; sys.stdin.close()",
        "import sys\nclass Bad:\n  def __getattr__(self, name): raise BaseException\nsys.stdout = sys.stderr = Bad()",
    ],
)
def test_streams_are_whole_in_the_next_cell(worker, code):
    worker.run(code)
    outcome = worker.good("import sys, os, gc; gc.collect(); print('out é \\ud800'); print('err', file=sys.stderr)")
    assert (outcome.stdout, outcome.stderr) == ("out é \\ud800\n", "err\n")
    outcome = worker.good("os.system('echo child; echo bad >&2'); os.read(0, 1)")
    assert (outcome.stdout, outcome.stderr, outcome.value) == ("child\n", "bad\n", "b''")
    assert NOBODY in worker.run("sys.stdin.read()").error["message"]


def test_text_in_a_replaced_stream_is_not_lost(worker):
    outcome = worker.good("import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8'); print('kept')")
    assert outcome.stdout == "kept\n"


def test_replaced_builtins_and_modules_do_not_break_the_protocol(worker):
    code = """
import builtins, json, os, sys, time, io
def broken(*a, **k): raise RuntimeError("replaced")
for name in ("repr", "len", "str", "isinstance", "type", "dict", "print", "max", "min", "sum", "any", "next", "iter",
             "getattr", "hasattr", "compile", "eval", "exec", "list", "tuple", "callable", "vars", "bytes"):
    setattr(builtins, name, broken)
json.dumps = json.loads = json.JSONEncoder.encode = json.JSONDecoder.decode = broken
os.write = os.read = os.close = os.dup2 = os.fstat = broken
time.perf_counter = io.FileIO = broken
sys.stdout = None
"""
    worker.run(code)
    outcome = worker.good("x = [1, 'a']\ndisplay(x)\nx")
    assert (outcome.texts, outcome.value) == (["[1, 'a']"], "[1, 'a']")
    assert worker.run("1 / 0").error["name"] == "ZeroDivisionError"
    worker.reset()
    assert worker.value("len(repr([1]))") == "3"


def test_the_working_directory_lasts(worker, tmp_path):
    (tmp_path / "sub").mkdir()
    worker.run("import os; os.chdir('sub')")
    assert worker.value("os.getcwd()") == repr(str(tmp_path / "sub"))
    (tmp_path / "sub").rmdir()
    assert worker.value("1") == "1"
    assert worker.run("os.getcwd()").error["name"] == "FileNotFoundError"
    worker.reset()
    assert worker.value("import os; os.getcwd()") == repr(str(tmp_path))


def test_modules_of_the_working_directory_can_be_imported(worker, tmp_path):
    (tmp_path / "helper.py").write_text("answer = 42")
    (tmp_path / "random.py").write_text("1 / 0")
    assert worker.value("import helper; helper.answer") == "42"
    assert worker.good("import random; random.random()").kinds == "VD"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["helper.py", "random.py"]


def test_a_reset_forgets_variables_and_keeps_modules(worker):
    worker.run("import decimal, sys, asyncio\nx = 1\nprint = 2\nawait asyncio.sleep(0)")
    worker.run(
        "import builtins; builtins.extra = 5; builtins.len = None; held ="
        " asyncio.get_event_loop_policy().get_event_loop()"
    )
    worker.run("decimal.loop = held; decimal.task = held.create_task(asyncio.sleep(999)); 7")
    outcome = worker.reset()
    assert (outcome.kinds, outcome.stdout, outcome.stderr) == ("D", "", "")
    for name in ("x", "_", "extra", "decimal"):
        assert worker.run(name).error["name"] == "NameError"
    assert worker.value("import sys; 'decimal' in sys.modules") == "True"
    assert worker.good("import decimal; decimal.loop.is_closed(), decimal.task.cancelled()").value == "(True, True)"
    assert worker.value("import asyncio; await asyncio.sleep(0, len('abc'))") == "3"
    assert (
        worker.value("import linecache; [n for n in linecache.cache if n.startswith('<cell') and len(n) == 8][:1]")
        != "['<cell 1>']"
    )
    assert worker.value("sys.modules['__main__'].__dict__ is globals()") == "True"


def test_a_reset_frees_memory(worker):
    worker.run("import weakref, sys\nclass A: pass\na = A(); a.a = a; sys.ref = weakref.ref(a)\ndef f(): return a")
    worker.reset()
    assert worker.value("import sys; sys.ref()") is None


def test_functions_of_cells_can_be_inspected_and_pickled(worker):
    worker.run("def f(x):\n    # why\n    return x")
    assert worker.value("import inspect; inspect.getsource(f)") == repr("def f(x):\n    # why\n    return x\n")
    assert worker.value("import pickle; pickle.loads(pickle.dumps(f)) is f") == "True"
    code = "import dataclasses\n@dataclasses.dataclass\nclass P:\n  x: int\npickle.loads(pickle.dumps(P(3)))"
    assert worker.value(code) == "P(x=3)"


def test_multiprocessing_of_functions(worker):
    code = """
import multiprocessing, os
def square(n): return n * n
def look(_): return [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')]
control = os.readlink('/proc/self/fd/3')
with multiprocessing.get_context('fork').Pool(2) as pool:
    squares = pool.map(square, range(5))
    seen = [control in each for each in pool.map(look, range(2))]
squares, control.startswith('socket:'), seen
"""
    assert worker.value(code) == "([0, 1, 4, 9, 16], True, [False, False])"
    assert worker.value("1") == "1"


@pytest.mark.parametrize(
    "child, status, stderr",
    [
        ("pass", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('bye')", 1, "bye\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("display(1)", 0, ""),
    ],
)
def test_a_forked_child_ends_with_the_cell(worker, child, status, stderr):
    code = f"""
import os, sys
pid = os.fork()
if pid == 0:
    print('child')
    {child}
else:
    status = os.waitpid(pid, 0)[1]
status >> 8
"""
    outcome = worker.good(code.replace("status >> 8", "os.getpid() if pid == 0 else status >> 8"))
    assert (outcome.value, outcome.kinds) == (str(status), "VD")
    assert outcome.stdout == "child\n" + ("1\n" if "display" in child else "")
    assert outcome.stderr.endswith(stderr) and bool(outcome.stderr) == bool(stderr)
    assert worker.value("1") == "1"


def test_a_forked_child_outlives_the_cell(worker):
    code = """
import os
reader, writer = os.pipe()
if (pid := os.fork()) == 0:
    os.read(reader, 1)
    os._exit(9)
"""
    worker.good(code)
    assert worker.value("2") == "2"
    assert worker.value("os.write(writer, b'x'); os.waitpid(pid, 0)[1] >> 8") == "9"


def test_threads_go_on_between_cells(worker):
    code = """
import threading
wake, done = threading.Event(), threading.Event()
def late():
    wake.wait()
    print('late')
    display('of a thread')
    done.set()
threading.Thread(target=late).start()
"""
    worker.good(code)
    outcome = worker.good("wake.set(); done.wait()")
    assert (outcome.stdout, outcome.texts, outcome.value) == ("late\n", ["'of a thread'"], "True")
    outcome = worker.good(
        "threading.Thread(target=lambda: 1 / 0).start()\nfor t in threading.enumerate()[1:]: t.join()"
    )
    assert "ZeroDivisionError" in outcome.stderr and "<cell 3>" in outcome.stderr


def test_the_end_of_the_process_leaves_its_output(worker):
    worker.start("print('partial'); import os; os._exit(4)")
    assert worker.end() == (4, "partial\n", "")


def test_a_crash_says_where(worker):
    worker.start("print('partial')\nimport ctypes\nctypes.string_at(0)")
    status, stdout, stderr = worker.end()
    assert (status, stdout) == (-signal.SIGSEGV, "partial\n")
    assert "Segmentation fault" in stderr and '"<cell 1>", line 3' in stderr


def test_exhausted_descriptors(worker):
    code = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
while True:
    held.append(os.open('/dev/null', 0))
"""
    error = worker.run(code).error
    assert error["name"] == "OSError" and "<cell 1>" in error["traceback"]
    assert worker.value("[os.close(fd) for fd in held]; 1") == "1"


def test_a_closed_control_descriptor_ends_the_process(worker):
    worker.start("import os; os.close(3); print('after')")
    assert worker.end()[1] == "after\n"


# --- Display


def test_display_shows_texts(worker):
    outcome = worker.good("display(1, 'two', [3], display_id=True)\nfrom builtins import display as d; d({4})")
    assert (outcome.texts, outcome.kinds) == (["1", "'two'", "[3]", "{4}"], "TTTTD")


def test_displayed_texts_are_bounded(worker):
    outcome = worker.good("for at in range(1000): display('x' * 1000)", max_value=500)
    assert all(len(text.encode()) <= 500 for text in outcome.texts)
    assert sum(map(len, outcome.texts)) < 70_000
    assert outcome.notices == [
        f"displayed values left out: {1000 - len(outcome.texts)}, because there was too much text already"
    ]


PNG = (
    "import base64; png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==')\n"
)


@pytest.mark.parametrize(
    "body, mime",
    [
        ("def _repr_png_(self): return png", "image/png"),
        ("def _repr_png_(self): return base64.b64encode(png).decode()", "image/png"),
        ("def _repr_png_(self): return png, {'width': 1}", "image/png"),
        ("def _repr_jpeg_(self): return png", "image/jpeg"),
        ("def _repr_svg_(self): return '<svg/>'", "image/svg+xml"),
        ("def _repr_mimebundle_(self, include=None, exclude=None): return {'image/png': png}", "image/png"),
        ("def _repr_mimebundle_(self, **k): return {'image/png': png, 'text/plain': 'p'}, {}", "image/png"),
        ("def _repr_png_(self): 1 / 0\n  def _repr_svg_(self): return '<svg/>'", "image/svg+xml"),
        ("def _repr_png_(self): return None\n  def _repr_jpeg_(self): return png", "image/jpeg"),
    ],
)
def test_images_of_objects(shared, body, mime):
    code = PNG + f"class A:\n  def __repr__(self): return 'an A'\n  {body}\n"
    outcome = shared.good(code + "A()")
    assert (outcome.kinds, outcome.mimes, outcome.value) == ("IVD", [mime], "an A")
    assert outcome.images[0] == (b"<svg/>" if "svg" in mime else outcome.images[0])
    if "svg" not in mime:
        assert png_size(outcome.images[0]) == (1, 1)
    assert shared.good("display(A(), A())").kinds == "IID"


@pytest.mark.parametrize(
    "body, text",
    [
        ("def _repr_markdown_(self): return '# Title'", "# Title"),
        ("def _repr_html_(self): return '<b>'", "an A"),
        ("def _repr_mimebundle_(self, **k): return {'text/html': '<b>', 'text/plain': 'plain'}", "plain"),
        ("def _repr_mimebundle_(self, **k): return {'text/html': '<b>', 'text/markdown': '*b*'}", "*b*"),
        ("def _repr_mimebundle_(self, **k): return 5", "an A"),
        ("def _repr_png_(self): return 5.5", "an A"),
        ("def _repr_markdown_(self): raise SystemError", "an A"),
        ("def __getattr__(self, name): return lambda *a, **k: 'anything'", "an A"),
    ],
)
def test_texts_of_objects(shared, body, text):
    code = f"class A:\n  def __repr__(self): return 'an A'\n  {body}\n"
    outcome = shared.good(code + "A()")
    assert (outcome.kinds, outcome.value) == ("VD", text)
    assert shared.good("display(A())").texts == [text]
    assert shared.good("A").value == "<class '__main__.A'>"


def test_the_number_and_the_size_of_images_are_limited(shared):
    code = "class A:\n  def __init__(self, n): self.n = n\n  def _repr_png_(self): return bytes(self.n)\n"
    outcome = shared.good(code + "for _ in range(5): display(A(10))", max_images=2)
    assert (len(outcome.images), outcome.notices) == (2, ["images not captured: 3, because a call may show 2"])
    outcome = shared.good("for n in (100, 101): display(A(n))", max_image_bytes=100)
    assert [len(data) for data in outcome.images] == [100]
    assert outcome.notices == [
        "images not captured: 1, because of their size (at most 100 bytes each, 16777216 bytes in all)"
    ]
    outcome = shared.good("for n in range(6): display(A(4 << 20))")
    assert len(outcome.images) == 4 and "images not captured: 2," in outcome.notices[0]
    outcome = shared.good("for n in range(3): display(A(8 << 20))", max_image_bytes=1 << 30)
    assert len(outcome.images) == 2


def test_an_interrupt_during_an_image_leaves_the_protocol_whole(worker):
    code = "class A:\n  def _repr_png_(self): return bytes(1 << 20)\nprint('running')\nwhile True: display(A())"
    outcome = worker.interrupted(code, max_images=10**6, max_image_bytes=1 << 20)
    assert outcome.error["name"] == "KeyboardInterrupt"


# --- Signals of a cell


@pytest.mark.parametrize(
    "arm",
    [
        "signal.signal(signal.SIGALRM, late); signal.alarm(1)",
        "signal.signal(signal.SIGALRM, late); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)",
        "signal.signal(signal.SIGPROF, late); signal.setitimer(signal.ITIMER_PROF, 0.0001, 0.0001)",
        "signal.signal(signal.SIGVTALRM, late); signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001, 0.0001)",
        "signal.signal(signal.SIGCHLD, late); import subprocess; subprocess.Popen(['sleep', '0.01'])",
    ],
)
def test_handlers_and_timers_of_a_cell_end_with_it(worker, arm):
    code = "import signal, time\ndef late(*_): raise TimeoutError('late')\nx = 41\n"
    worker.run(code + arm)
    # It has ended long before the alarm of a second, and would have ended the worker by now.
    worker.good("time.sleep(1.1)" if "alarm(1)" in arm else "time.sleep(0.05)")
    assert worker.value("x + 1") == "42"


def test_handlers_work_within_a_cell(worker):
    code = "import signal, time\ndef late(*_): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(60)"
    assert worker.run(code).error["name"] == "TimeoutError"
    # A signal whose handler was taken away does what it did before.
    assert worker.value("signal.getsignal(signal.SIGALRM) is signal.SIG_DFL") == "True"


# --- Packages

numpy, pandas, pyplot, pillow = needs("numpy"), needs("pandas"), needs("matplotlib", "PIL"), needs("PIL")


def decoded(data):
    from PIL import Image

    return Image.open(io.BytesIO(data))


@numpy
def test_arrays(shared):
    assert shared.value("import numpy; numpy.arange(3)") == "array([0, 1, 2])"
    outcome = shared.good("numpy.zeros((10_000, 1000))")
    assert "..." in outcome.value and outcome.type == "numpy.ndarray"


@pandas
def test_data_frames(shared):
    code = "import pandas\npandas.DataFrame({f'column{at}': range(1000) for at in range(40)})"
    outcome = shared.good(code)
    assert outcome.type.startswith("pandas.") and outcome.type.endswith("DataFrame")
    assert "[1000 rows x 40 columns]" in outcome.value and "<" not in outcome.value
    assert max(map(len, outcome.value.splitlines())) <= 120
    assert max(map(len, outcome.value.splitlines())) > 80
    assert shared.good("display(pandas.DataFrame({'a': [1]}))").texts == ["   a\n0  1"]
    assert len(shared.value("pandas.DataFrame({'a': range(60)})").splitlines()) == 61
    assert len(shared.value("pandas.DataFrame({'a': range(61)})").splitlines()) < 20
    assert shared.value("pandas.Series([1, 2])") == "0    1\n1    2\ndtype: int64"
    wide = shared.value("pandas.DataFrame({f'c{at}': [1] for at in range(21)})")
    assert "c0" in wide and "..." in wide and "[1 rows x 21 columns]" in wide


@pandas
def test_options_of_the_user_are_kept_within_bounds(shared):
    shared.run("import pandas; pandas.set_option('display.max_rows', None)")
    assert len(shared.value("pandas.DataFrame({'a': range(100)})").splitlines()) == 101
    assert len(shared.value("pandas.DataFrame({'a': range(3_000_000)})").encode()) <= 16384
    shared.reset()
    assert len(shared.value("import pandas; pandas.DataFrame({'a': range(100)})").splitlines()) < 20


@pillow
def test_pictures(shared):
    outcome = shared.good("import PIL.Image; PIL.Image.new('RGB', (300, 200), 'red')")
    assert (outcome.kinds, outcome.mimes) == ("IVD", ["image/png"]) and "size=300x200" in outcome.value
    assert decoded(outcome.images[0]).size == (300, 200) and decoded(outcome.images[0]).getpixel((0, 0)) == (255, 0, 0)
    assert decoded(shared.good("PIL.Image.new('L', (5000, 2500))").images[0]).size == (2048, 1024)
    for mode in ("1", "P", "CMYK", "F", "HSV", "I", "LA", "RGBA", "YCbCr"):
        assert decoded(shared.good(f"PIL.Image.new('{mode}', (9, 8))").images[0]).size == (9, 8)
    outcome = shared.good(
        "import os; PIL.Image.frombytes('RGB', (1000, 1000), os.urandom(3_000_000))", max_image_bytes=2 << 20
    )
    assert outcome.mimes == ["image/jpeg"] and decoded(outcome.images[0]).size == (1000, 1000)


@pyplot
def test_figures_are_captured_at_the_end_of_a_cell(shared):
    outcome = shared.good(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.figure(figsize=(3, 2)); plt.bar([1], [2]);"
    )
    assert (outcome.kinds, outcome.mimes, outcome.stderr) == ("IID", ["image/png"] * 2, "")
    (wide, high), (small_wide, _) = (decoded(data).size for data in outcome.images)
    assert 400 < wide < 650 and 300 < high < 490 and 200 < small_wide < 310
    assert shared.value("plt.get_fignums()") == "[]"
    assert shared.good("plt.figure();").kinds == "D"


@pyplot
def test_show_works_in_the_cell_that_imports_it(worker):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint(plt.get_fignums())\ndisplay('after')"
    outcome = worker.good(code)
    assert (outcome.kinds, outcome.stdout, outcome.stderr) == ("ITD", "[]\n", "")
    outcome = worker.good(
        "from matplotlib.pyplot import show, subplots\nfig, ax = subplots()\nax.plot([1])\nfig.show()\nshow(block=True)"
    )
    assert (outcome.kinds, outcome.stderr) == ("ID", "")


@pillow
def test_a_picture_that_is_shown_is_an_image(shared):
    outcome = shared.good("from PIL import Image\nImage.new('RGB', (40, 20)).show()\nImage.new('L', (8, 4)).show(title='t')")
    assert (outcome.kinds, outcome.stderr) == ("IID", "")
    assert [decoded(data).size for data in outcome.images] == [(40, 20), (8, 4)]


def test_what_other_libraries_show_is_shown_or_said(worker):
    for name, text in (
        ("plotly/basedatatypes.py", "class BaseFigure:\n  def write_html(self, name, **_): open(name, 'w').write('<html>')\n"),
        ("IPython/display.py", "def display(*values): print('lost')\n"),
    ):
        path = worker.directory / name
        path.parent.mkdir()
        (path.parent / "__init__.py").write_text("")
        path.write_text(text)
    outcome = worker.good("from plotly.basedatatypes import BaseFigure\nBaseFigure().show(); BaseFigure().show('browser')")
    assert [text.split()[0] for text in outcome.notices] == ["figure_1.html", "figure_2.html"]
    assert (worker.directory / "figure_2.html").read_text() == "<html>"
    code = "class A:\n  def _repr_png_(self): return b'png'\nfrom IPython.display import display as shown\nshown(A(), 7)"
    outcome = worker.good(code)
    assert (outcome.images, outcome.texts, outcome.stdout) == ([b"png"], ["7"], "")
    outcome = worker.good("import webbrowser\nwebbrowser.open('https://example.org'), webbrowser.open_new_tab('x')")
    assert (outcome.value, len(outcome.notices)) == ("(False, False)", 2)
    assert "no browser" in outcome.notices[0]


@pyplot
def test_show_works_when_it_is_preloaded(start):
    worker = start(preload=["matplotlib.pyplot"])
    assert worker.ready["preload_failed"] == []
    outcome = worker.good("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([3])\nplt.show()")
    assert (outcome.kinds, outcome.stderr) == ("IID", "")


@pyplot
def test_a_figure_as_the_last_expression_is_shown_once(shared):
    outcome = shared.good("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nfig")
    assert outcome.kinds == "IVD" and outcome.value.startswith("<Figure size 640x480")
    outcome = shared.good("ax.plot([3])\ndisplay(fig)")
    assert outcome.kinds == "ID"
    assert shared.good("from matplotlib.figure import Figure\nf = Figure()\nf.subplots().plot([1])\nf").kinds == "IVD"


@pyplot
def test_figures_are_captured_also_after_an_error(shared):
    outcome = shared.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n1 / 0")
    assert outcome.kinds == "XID"
    assert shared.run("1").kinds == "VD"


@pyplot
def test_saved_figures_are_files(shared_worker, shared):
    outcome = shared.good(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('plot.png', dpi=50)\nplt.close()"
    )
    assert outcome.kinds == "D"
    assert png_size((shared_worker.directory / "plot.png").read_bytes()) == (320, 240)


@pyplot
def test_no_figure_is_too_large(shared):
    outcome = shared.good("import matplotlib.pyplot as plt\nplt.figure(figsize=(300, 150), dpi=300); plt.plot([1]);")
    size = decoded(outcome.images[0]).size
    assert size[0] <= 2048 and size[0] > 1500
    outcome = shared.good("plt.plot([1]); plt.text(50, 0.5, 'far away');")
    assert max(decoded(outcome.images[0]).size) < 700
    outcome = shared.good(
        "import numpy; plt.imshow(numpy.random.rand(2000, 2000, 3)); plt.gcf().set_size_inches(15, 15);",
        max_image_bytes=2_500_000,
    )
    assert len(outcome.images) == 1 and 500 < max(decoded(outcome.images[0]).size) < 800


@pyplot
def test_a_figure_that_cannot_be_drawn_is_said(shared):
    outcome = shared.good(
        "import matplotlib.pyplot as plt\nplt.plot([1]); plt.title('$\\\\frac{$')\nplt.figure(); plt.plot([2]);"
    )
    assert outcome.kinds == "NID" and "a figure could not be drawn: ValueError" in outcome.notices[0]


@pyplot
def test_too_many_figures_are_counted(shared):
    outcome = shared.good(
        "import matplotlib.pyplot as plt\nfor _ in range(5): plt.figure(); plt.plot([1])", max_images=3
    )
    assert (len(outcome.images), outcome.notices) == (3, ["images not captured: 2, because a call may show 3"])


@pyplot
def test_figures_of_an_interrupted_cell_are_closed(shared):
    shared.run("import matplotlib.pyplot as plt")
    outcome = shared.interrupted("plt.plot([1])\nprint('running')\nwhile True: pass")
    assert outcome.kinds == "XND" and "not captured, because the code was interrupted" in outcome.notices[0]
    assert shared.value("plt.get_fignums()") == "[]"


@pyplot
def test_drawing_can_be_interrupted(shared):
    code = """
import matplotlib.pyplot as plt, matplotlib.lines
class Slow(matplotlib.lines.Line2D):
    def draw(self, renderer):
        print('running')
        while True: pass
plt.gca().add_line(Slow([0], [0]))
1
"""
    outcome = shared.interrupted(code)
    assert (outcome.kinds, outcome.error["name"]) == ("VXD", "KeyboardInterrupt")
    assert shared.value("plt.get_fignums()") == "[]"


ANIMATION = """
import matplotlib.pyplot as plt, matplotlib.animation
def make(frames, size=(8, 4), **options):
    fig, ax = plt.subplots(figsize=size)
    line, = ax.plot([0, 1], [0, 1])
    seen = []
    def update(at):
        seen.append(at)
        line.set_ydata([0, at])
        return line,
    made = matplotlib.animation.FuncAnimation(fig, update, frames=frames, **options)
    made.seen = seen
    return made
"""


@pyplot
@pytest.mark.parametrize("end", ["a", "a;", "plt.show()", "plt.close()", "1 / 0"])
def test_frames_of_animations_are_captured(shared, end):
    shared.good(ANIMATION)
    outcome = shared.run(f"a = make(100)\n{end}")
    assert (len(outcome.frames), outcome.images, outcome.stderr) == (24, [], "")
    assert outcome.notices == ["animation: 24 of 100 frames are shown"]
    assert {decoded(data).size for data in outcome.frames} == {(512, 256)}
    assert len(set(outcome.frames)) > 20
    assert shared.good("1").kinds == "VD"


@pyplot
def test_short_and_endless_animations(shared):
    shared.good(ANIMATION + "import itertools")
    outcome = shared.good("a = make(5, size=(2, 3), blit=True)")
    assert len(outcome.frames) == 5 and {decoded(data).size for data in outcome.frames} == {(200, 300)}
    assert shared.good("a.seen[-5:]").value == "[0, 1, 2, 3, 4]"
    outcome = shared.good("a = make(itertools.count, cache_frame_data=False)")
    assert len(outcome.frames) == 24 and outcome.notices[0].startswith("animation: 24 of")
    assert "could not be drawn" in shared.good("b = make(lambda: iter([1, [2, 3, 4]]), save_count=3)").notices[0]
    assert shared.good("plt.get_fignums()").value == "[]"


@pyplot
def test_frames_are_limited_in_all(shared):
    shared.good(ANIMATION)
    outcome = shared.good("a = make(20)\nb = make(20)")
    assert len(outcome.frames) == 24
    assert outcome.notices == ["animation: 20 of 20 frames are shown", "animation: 4 of 20 frames are shown"]


@pyplot
def test_a_reset_closes_figures(shared):
    shared.run("import matplotlib.pyplot as plt, sys\nsys.late = lambda: plt.plot([1])")
    shared.reset()
    assert shared.good("import matplotlib.pyplot as plt; plt.get_fignums()").value == "[]"


@pyplot
def test_packages_work_with_one_preloaded_interpreter(start):
    worker = start(preload=["numpy", "pandas", "matplotlib.pyplot", "PIL.Image"])
    assert worker.ready["preload_failed"] == []
    outcome = worker.good("import pandas as pd\npd.Series([1, 3]).plot()\npd.DataFrame({'a': range(100)})")
    assert outcome.kinds.startswith("VI") and "[100 rows x 1 columns]" in outcome.value
    assert os.listdir(worker.directory) == []
