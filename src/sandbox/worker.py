"""The interpreter of a workspace: runs cells received as frames on a private descriptor, and replies with frames.

Started as `python -I -u -c <this text> '{"fd":3,"preload":["numpy"],"workdir":"/mnt/data"}'`. The cells share this
process and may break it; then the server replaces the process. This program guards against accidents of ordinary code.
"""

import _ast
import _signal
import _thread
import builtins
import faulthandler
import gc
import io
import json
import os
import sys
import time
from collections import deque

# Functions below use this copy, so that a cell may replace `builtins.repr` and other built-in functions.
__builtins__ = dict(vars(builtins))

PROTOCOL = 1
MIB = 1024 * 1024
MAX_FRAME = 8 * MIB + 64 * 1024
MAX_IMAGE = 8 * MIB
MAX_IMAGES_TOTAL = 16 * MIB
MAX_TEXTS = 64 * 1024
MAX_TRACEBACK = 16 * 1024
MAX_MESSAGE = 4 * 1024
MAX_NAME = 200
# A longer traceback is shown without its middle; it is a recursion.
MAX_TRACEBACK_FRAMES = 50
MAX_SOURCES = 1000
MAX_SIDE = 2048
FIGURE_DPI = 100
MAX_FRAMES = 24
MAX_FRAME_SIDE = 512
# An animation without a length is assumed to have this many frames; a longer one is drawn up to the limit only.
ENDLESS_FRAMES = 100
MAX_DRAWN_FRAMES = 1000
MAX_DRAWING_SECONDS = 10
# Below this number of items, a value's own `__repr__` is assumed to be short.
MANY_ITEMS = 10_000
# Largest pandas display options; more text would be truncated anyway.
MAX_ROWS, MAX_COLUMNS = 1000, 200
CO_COROUTINE = 0x80
FUTURE_ANNOTATIONS = 0x1000000
NOBODY = "there is no user at this interpreter: {} cannot be used; {}"

read, write, close, fstat, dup2, end_process = os.read, os.write, os.close, os.fstat, os.dup2, os._exit
clock, set_trace, set_profile = time.perf_counter, sys.settrace, sys.setprofile
File, BinaryWriter, TextWriter, Bytes = io.FileIO, io.BufferedWriter, io.TextIOWrapper, io.BytesIO
set_signal, set_mask, SIGINT = _signal.signal, _signal.pthread_sigmask, _signal.SIGINT
get_signal, set_timer = _signal.getsignal, _signal.setitimer
TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
from_json, quote = json.JSONDecoder().scan_once, json.encoder.encode_basestring
modules = sys.modules


class State:
    """The state of the worker; one instance per process."""

    fd = -1
    workdir = ""
    busy = False  # A request is being served: SIGINT means it.
    pending = False  # SIGINT came where raising would have torn the protocol.
    call = None
    cells = 0
    module = None
    worker_module = modules["__main__"]
    loop = None
    future_flags = 0
    sources = {}
    streams = {}
    saved = {}
    handlers = {}  # The handlers of signals as they were before the first cell.
    recursion_limit = sys.getrecursionlimit()
    lock = _thread.allocate_lock()
    main_thread = _thread.get_ident()


class Call:
    """The limits of one request and their current use."""

    def __init__(self, request):
        def number(name, default=None):
            value = request.get(name, default)
            if type(value) is not int or value < 0:
                raise ValueError(name)
            return value

        self.id = number("id")
        self.max_value = number("max_value", 16 * 1024)
        self.max_images = number("max_images", 10)
        self.max_image_bytes = min(number("max_image_bytes", 4 * MIB), MAX_IMAGE)
        self.images = self.frames = self.image_bytes = self.text_bytes = 0
        self.too_many = self.too_large = self.texts_left_out = 0
        self.shown = []  # Figures that need not be shown at the end.


# --- Frames ---------------------------------------------------------------------------------------------------------


def receive(size):
    """Reads exactly this many bytes; ends the process if the server is gone."""
    parts = []
    while size:
        part = read(State.fd, size)
        if not part:
            leave()
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def to_json(value):
    if isinstance(value, str):
        # Lone surrogates cannot be encoded as UTF-8.
        return quote(value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, list):
        return "[" + ",".join([to_json(each) for each in value]) + "]"
    return str(value)


def send(kind, head, data=None):
    """Writes one frame. SIGINT is deferred meanwhile, so that no partial frame is written."""
    payload = ("{" + ",".join([quote(key) + ":" + to_json(value) for key, value in head.items()]) + "}").encode()
    if data is not None:
        payload = len(payload).to_bytes(2, "little") + payload + data
    with State.lock:
        # A forked child has no such descriptor.
        if State.fd < 0:
            return
        rest = memoryview((len(payload) + 1).to_bytes(4, "little") + kind + payload)
        try:
            while rest:
                rest = rest[write(State.fd, rest) :]
        except OSError:
            leave()


def emit(kind, head, data=None):
    """Sends a frame from within a cell."""
    send(kind, head, data)
    if State.pending and _thread.get_ident() == State.main_thread:
        State.pending = False
        raise KeyboardInterrupt


def notice(text):
    emit(b"N", {"id": State.call.id, "text": cut(text, MAX_MESSAGE)})


def leave(status=0):
    for stream in State.streams.values():
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    end_process(status)


# --- Interrupts -----------------------------------------------------------------------------------------------------


def on_sigint(_number, frame):
    """Raises only inside a cell's code. The stack tells where the signal arrived; a flag would leave a gap."""
    if not State.busy:
        return
    while frame is not None:
        if frame.f_code is interruptible.__code__:
            break
        if frame.f_code is send.__code__ or frame.f_code is serve.__code__:
            State.pending = True
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def interruptible(function, arguments):
    if State.pending:
        State.pending = False
        raise KeyboardInterrupt
    function(*arguments)


def guarded(function, *arguments):
    """Calls a function that may run user code; returns the exception, if any."""
    raised = None
    try:
        try:
            interruptible(function, arguments)
        finally:
            forget_signals()
    except BaseException as error:
        raised = error
    forget_signals()
    # Trace functions and the recursion limit of a cell must not affect the worker.
    set_trace(None)
    set_profile(None)
    if sys.getrecursionlimit() < State.recursion_limit:
        sys.setrecursionlimit(State.recursion_limit)
    return raised


def forget_signals():
    """Ends the timers of a cell and takes its signal handlers away: they would run in the frames of the worker."""
    while True:
        try:
            for timer in TIMERS:
                set_timer(timer, 0)
            for number, handler in State.handlers.items():
                if get_signal(number) is not handler:
                    set_signal(number, handler)
            return
        except BaseException:
            # A handler that raises. What was taken away before it stays away.
            pass


def watch_sigint():
    set_signal(SIGINT, on_sigint)
    set_mask(_signal.SIG_UNBLOCK, (SIGINT,))


# --- Texts ----------------------------------------------------------------------------------------------------------


def cut(text, limit, note="\n… (cut here: the text is longer)"):
    """Truncates a text to a number of bytes, with a note at the end."""
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    note = note.encode() if len(note) * 4 < limit else b""
    return data[: max(limit - len(note), 0)].decode("utf-8", "ignore") + note.decode()


def cut_middle(text, limit):
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > limit:
        head = limit // 3
        left_out = f"\n… ({len(data) - limit} bytes are left out here)\n"
        data = data[:head] + left_out.encode() + data[head + 100 - limit :]
    return data.decode("utf-8", "ignore")


def exact(text):
    """Converts a string that may be of a subclass to a plain string."""
    return text if type(text) is str else str.__str__(text)


def type_name(value):
    kind = type(value)
    try:
        prefix = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        return cut(exact(f"{prefix}{kind.__qualname__}"), MAX_NAME, "…")
    except Exception:
        return "object"


def message_of(error):
    if isinstance(error, SystemExit):
        code = "" if error.code is None else cut(exact(repr(error.code)), MAX_NAME, "…")
        return f"sys.exit({code}) was called; the interpreter goes on"
    if isinstance(error, KeyboardInterrupt) and not error.args:
        return "the code was interrupted"
    return cut(exact(str(error)), MAX_MESSAGE)


BRACKETS = {
    id(list): ("[", "]"),
    id(tuple): ("(", ")"),
    id(dict): ("{", "}"),
    id(set): ("{", "}"),
    id(frozenset): ("frozenset({", "})"),
    id(type({}.keys())): ("dict_keys([", "])"),
    id(type({}.values())): ("dict_values([", "])"),
    id(type({}.items())): ("dict_items([", "])"),
}


class Text:
    """Builds a `repr` piece by piece, up to a size limit."""

    def __init__(self, room):
        self.room = room
        self.parts = []
        self.within = set()

    def add(self, text):
        text = exact(text)
        self.parts.append(text if len(text) <= self.room else text[: self.room + 1])
        self.room -= len(text)

    def describe(self, value):
        kind = type(value)
        brackets = BRACKETS.get(id(kind))
        if kind in (str, bytes, bytearray):
            self.add(repr(value if len(value) <= self.room else value[: self.room + 1]))
        elif brackets is not None and (value or id(kind) in (id(list), id(tuple), id(dict))):
            self.items(value, brackets)
        elif brackets is None and isinstance(value, CONTAINERS) and len(value) > MANY_ITEMS:
            start, end = BRACKETS.get(next((id(base) for base in kind.__mro__ if id(base) in BRACKETS), None), "[]")
            self.items(value, (f"{kind.__name__}({start}", f"{end})"))
        else:
            self.add(repr(value))

    def items(self, value, brackets):
        if id(value) in self.within:
            self.add(brackets[0] + "..." + brackets[1])
            return
        self.within.add(id(value))
        self.add(brackets[0])
        pairs = isinstance(value, dict)
        comma = False
        for item in value.items() if pairs else value:
            if comma:
                self.add(", ")
            comma = True
            if pairs:
                self.describe(item[0])
                self.add(": ")
                item = item[1]
            self.describe(item)
            if self.room < 0:
                return
        if type(value) is tuple and len(value) == 1:
            self.add(",")
        self.add(brackets[1])
        self.within.discard(id(value))


CONTAINERS = (list, tuple, dict, set, frozenset, deque)


def text_of(value, limit):
    """The text of a value for the model."""
    try:
        if is_a(value, "pandas", "DataFrame") or is_a(value, "pandas", "Series"):
            pandas = modules["pandas"]
            rows, columns = (
                min(pandas.get_option(f"display.max_{name}") or most, most)
                for name, most in (("rows", MAX_ROWS), ("columns", MAX_COLUMNS))
            )
            with pandas.option_context("display.max_rows", rows, "display.max_columns", columns):
                return cut(exact(repr(value)), limit)
        text = Text(limit)
        text.describe(value)
        note = "\n… (cut here: the text is longer)"
        if text.room < 0 and (isinstance(value, CONTAINERS) or type(value) in (str, bytes, bytearray)):
            note = f"\n… (cut here: the {type(value).__name__} has {len(value)} items in all)"
        return cut("".join(text.parts), limit, note)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return cut(f"<no text: the repr of this {type_name(value)} raised {explain(error)}>", limit)


def explain(error):
    try:
        return cut(f"{type_name(error)}: {message_of(error)}", MAX_MESSAGE)
    except Exception:
        return type_name(error)


# --- Errors ---------------------------------------------------------------------------------------------------------


def all_of(error):
    """The exceptions in a traceback: causes, contexts, members of groups."""
    found, rest = [], [error]
    while rest and len(found) < 100:
        each = rest.pop()
        if each is not None and not any(each is other for other in found):
            found.append(each)
            rest += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
    return found


def tidy(error):
    """Removes the worker's frames and the middle of a long chain; returns the number removed for length."""
    nodes = []
    node = error.__traceback__
    while node is not None:
        if node.tb_frame.f_globals is not GLOBALS:
            nodes.append(node)
        node = node.tb_next
    # The frames before the cell's are those that called it, such as the event loop's.
    first = next((at for at, node in enumerate(nodes) if node.tb_frame.f_code.co_filename.startswith("<cell ")), 0)
    nodes = nodes[first:]
    removed = len(nodes) - MAX_TRACEBACK_FRAMES
    if removed > 0:
        half = MAX_TRACEBACK_FRAMES // 2
        nodes = nodes[:half] + nodes[-half:]
    for node, following in zip(nodes, nodes[1:] + [None]):
        node.tb_next = following
    error.__traceback__ = nodes[0] if nodes else None
    return max(removed, 0)


def describe_error(error, head):
    """Fills in the text of an error for the model."""
    if isinstance(error, (MemoryError, RecursionError)):
        # The local variables of the frames may be what fills the memory.
        for each in all_of(error):
            node = each.__traceback__
            while node is not None:
                try:
                    node.tb_frame.clear()
                except RuntimeError:
                    pass
                node = node.tb_next
        gc.collect()
    removed = sum([tidy(each) for each in all_of(error)])
    head["name"] = cut(exact(type(error).__name__), MAX_NAME, "…")
    if isinstance(error, SyntaxError) and error.text is None and error.filename in State.sources and error.lineno:
        error.text = "".join(State.sources[error.filename][error.lineno - 1 : error.lineno])
    # A cell may have cleared it.
    linecache.cache.update({name: entry(name, lines) for name, lines in State.sources.items()})
    # Before the traceback is built, because that would swallow an interrupt here.
    try:
        head["message"] = message_of(error)
    except Exception:
        pass
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception:
        # `traceback` imports modules here, for which memory or descriptors may be exhausted.
        lines = plain_traceback(error, head)
    if removed:
        lines.insert(0, f"({removed} calls in the middle of a long chain are left out)\n")
    head["traceback"] = cut_middle("".join(lines).rstrip("\n"), MAX_TRACEBACK)


def plain_traceback(error, head):
    lines, node = [], error.__traceback__
    while node is not None:
        code = node.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {node.tb_lineno}, in {code.co_name}\n')
        lines.append("    " + linecache.getline(code.co_filename, node.tb_lineno).strip() + "\n")
        node = node.tb_next
    return ["Traceback (most recent call last):\n", *lines, f"{head['name']}: {head['message']}"]


def report(call, error):
    """Reports an error as far as possible: its `__str__` may hang; memory or descriptors may be exhausted."""
    State.pending = False
    head = {"id": call.id, "name": type_name(error), "message": "(it has no readable message)", "traceback": ""}
    guarded(describe_error, error, head)
    send(b"X", head)


# --- Display --------------------------------------------------------------------------------------------------------


def is_a(value, module, name):
    kind = getattr(modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def image_allowed():
    call = State.call
    if call.images < call.max_images:
        return True
    call.too_many += 1
    return False


def send_image(mime, data, kind="image"):
    """Sends an image if the limits of the call allow it."""
    call = State.call
    if len(data) > call.max_image_bytes or call.image_bytes + len(data) > MAX_IMAGES_TOTAL:
        call.too_large += 1
        return False
    call.image_bytes += len(data)
    if kind == "image":
        call.images += 1
    else:
        call.frames += 1
    emit(b"I", {"id": call.id, "mime": mime, "kind": kind}, bytes(data))
    return True


def figure_png(figure, dpi):
    # With a label far outside, a tight bounding box could have any size.
    tight = figure.get_tightbbox

    def bounded(*arguments, **options):
        box = tight(*arguments, **options)
        return box if max(box.width, box.height) * dpi <= MAX_SIDE else figure.bbox_inches

    figure.get_tightbbox = bounded
    try:
        buffer = Bytes()
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", pad_inches=0.1)
        return buffer.getvalue()
    finally:
        del figure.get_tightbbox


def show_figure(figure):
    State.call.shown.append(figure)
    # The background patch always exists.
    if len(figure.get_children()) < 2 or not image_allowed():
        return
    dpi = min(FIGURE_DPI, MAX_SIDE / max(figure.get_size_inches()))
    try:
        data = figure_png(figure, dpi)
        if len(data) > State.call.max_image_bytes:
            data = figure_png(figure, dpi / 2)
    except Exception as error:
        notice(f"a figure could not be drawn: {explain(error)}")
        return
    send_image("image/png", data)


def show_figures(*_arguments, **_options):
    """Shows and closes all open figures: `plt.show()`, and the end of a cell."""
    pyplot = modules.get("matplotlib.pyplot")
    if State.call is None or State.fd < 0 or not hasattr(pyplot, "get_fignums"):
        return
    try:
        for value in list(vars(State.module).values()):
            if is_a(value, "matplotlib.animation", "Animation") and not hasattr(value, "_loopwright_shown"):
                show_animation(value)
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if not any(figure is each for each in State.call.shown):
                show_figure(figure)
    finally:
        pyplot.close("all")


def drop_figures():
    pyplot = modules["matplotlib.pyplot"]
    if pyplot.get_fignums():
        pyplot.close("all")
        notice("open figures were closed and not captured, because the code was interrupted")


def show_animation(animation):
    """Sends evenly spaced frames of an animation."""
    animation._loopwright_shown = True
    call, figure = State.call, animation._fig
    call.shown.append(figure)
    total = getattr(animation, "_save_count", None)
    known = isinstance(total, int) and total > 0
    drawn = min(total, MAX_DRAWN_FRAMES) if known else ENDLESS_FRAMES
    wanted = min(drawn, MAX_FRAMES - call.frames)
    chosen = {round(at * (drawn - 1) / max(wanted - 1, 1)) for at in range(wanted)}
    before, deadline = call.frames, clock() + MAX_DRAWING_SECONDS

    class Enough(Exception):
        pass

    class Writer(modules["matplotlib.animation"].AbstractMovieWriter):
        at = 0

        def setup(self, fig, outfile, dpi=None):
            self.fig, self.outfile, self.dpi = fig, outfile, dpi

        def grab_frame(self, **_options):
            if self.at in chosen:
                buffer = Bytes()
                figure.savefig(buffer, format="png", dpi=self.dpi)
                send_image("image/png", buffer.getvalue(), "frame")
            self.at += 1
            if self.at > max(chosen) or clock() > deadline:
                raise Enough

        def finish(self):
            pass

    canvas = figure.canvas
    # Otherwise frames that are not chosen would be drawn, too.
    canvas.draw_idle = lambda *_arguments, **_options: None
    writer = Writer()
    try:
        if chosen:
            animation.save("animation", writer, dpi=min(FIGURE_DPI, MAX_FRAME_SIDE / max(figure.get_size_inches())))
    except Enough:
        pass
    except Exception as error:
        notice(f"an animation could not be drawn: {explain(error)}")
    finally:
        del canvas.draw_idle
        if hasattr(modules.get("matplotlib.pyplot"), "close"):
            modules["matplotlib.pyplot"].close(figure)
    length = f"{total}" if known else (f"{writer.at}" if writer.at < ENDLESS_FRAMES else f"the first {drawn}")
    notice(f"animation: {call.frames - before} of {length} frames are shown")


def picture_bytes(picture):
    """A PIL image as PNG, or as JPEG if that would be too large."""
    picture = picture.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    for form, modes, options in (
        ("png", ("1", "L", "LA", "P", "RGB", "RGBA"), {}),
        ("jpeg", ("L", "RGB"), {"quality": 85}),
    ):
        buffer = Bytes()
        (picture if picture.mode in modes else picture.convert("RGB")).save(buffer, form, **options)
        if buffer.tell() <= State.call.max_image_bytes:
            break
    return f"image/{form}", buffer.getvalue()


def image_data(data):
    if isinstance(data, tuple):
        data = data[0]
    if isinstance(data, str):
        from binascii import a2b_base64

        data = a2b_base64(data)
    return bytes(data)


def bundle_of(value):
    """An object's representations by MIME type; objects with attributes of any name are skipped."""
    bundle = {}
    kind = type(value)
    methods = (
        ("image/png", "_repr_png_"),
        ("image/jpeg", "_repr_jpeg_"),
        ("image/svg+xml", "_repr_svg_"),
        ("text/markdown", "_repr_markdown_"),
    )
    if kind is type or isinstance(value, type):
        return bundle
    if callable(getattr(kind, "_repr_mimebundle_", None)):
        try:
            answer = value._repr_mimebundle_(include=None, exclude=None)
            bundle = dict(answer[0] if isinstance(answer, tuple) else answer)
        except Exception:
            pass
    for mime, name in methods:
        if not any(mime in bundle for mime, _ in methods) and callable(getattr(kind, name, None)):
            try:
                answer = getattr(value, name)()
            except Exception:
                continue
            if answer is not None:
                bundle[mime] = answer
    return bundle


def show_rich(value):
    """Sends the images of a value; returns whether there were any, and a better text than its `repr`, if any."""
    if is_a(value, "matplotlib.figure", "Figure"):
        show_figure(value)
        return True, None
    if is_a(value, "matplotlib.animation", "Animation"):
        show_animation(value)
        return True, None
    if is_a(value, "PIL.Image", "Image"):
        if image_allowed():
            send_image(*picture_bytes(value))
        return True, None
    bundle = bundle_of(value)
    for mime in ("image/png", "image/jpeg", "image/svg+xml"):
        if mime in bundle:
            data = bundle[mime]
            try:
                data = data.encode() if mime.endswith("xml") and isinstance(data, str) else image_data(data)
            except (ValueError, TypeError):
                continue
            if image_allowed():
                send_image(mime, data)
            return True, None
    for mime in ("text/markdown", "text/plain"):
        text = bundle.get(mime)
        if isinstance(text, tuple):
            text = text[0]
        if isinstance(text, str):
            return False, exact(text)
    return False, None


def display(*values, **_options):
    """Shows values: images as images, everything else as text."""
    call = State.call
    for value in values:
        if call is None or State.fd < 0:
            print(text_of(value, MAX_TEXTS), file=sys.stdout)
            continue
        shown, text = show_rich(value)
        if shown:
            continue
        if call.text_bytes >= MAX_TEXTS:
            call.texts_left_out += 1
            continue
        text = text_of(value, call.max_value) if text is None else cut(text, call.max_value)
        call.text_bytes += len(text) + 1
        emit(b"T", {"id": call.id, "text": text})


def show_value(call, value):
    builtins._ = value
    _, text = show_rich(value)
    text = text_of(value, call.max_value) if text is None else cut(text, call.max_value)
    emit(b"V", {"id": call.id, "text": text, "type": type_name(value)})


def say_what_is_missing(call):
    left_out = []
    if call.too_many:
        left_out.append(f"images not captured: {call.too_many}, because a call may show {call.max_images}")
    if call.too_large:
        limits = f"{call.max_image_bytes} bytes each, {MAX_IMAGES_TOTAL} bytes in all"
        left_out.append(f"images not captured: {call.too_large}, because of their size (at most {limits})")
    if call.texts_left_out:
        left_out.append(f"displayed values left out: {call.texts_left_out}, because there was too much text already")
    for text in left_out:
        send(b"N", {"id": call.id, "text": text})


# --- Environment of a cell ------------------------------------------------------------------------------------------


class NoInput(io.TextIOBase):
    """A `sys.stdin` that explains why it cannot be read."""

    encoding = "utf-8"
    errors = "strict"
    name = "<stdin>"
    mode = "r"

    @property
    def buffer(self):
        return self

    def readable(self):
        return True

    def fileno(self):
        return 0

    def read(self, *_arguments):
        raise EOFError(NOBODY.format("sys.stdin", "put the values in the code, or read them from a file"))

    readline = readlines = readinto = read1 = __next__ = read


class Quitter:
    def __init__(self, name):
        self.name = name

    def __call__(self, code=None):
        raise SystemExit(code)

    def __repr__(self):
        return f"{self.name}() does not end this interpreter: it goes on after every cell"


def refuse(kind, name, remedy):
    def refused(*_arguments, **_options):
        raise kind(NOBODY.format(name, remedy))

    return refused


def stream_of(fd):
    binary = BinaryWriter(File(fd, "w", closefd=False))
    return TextWriter(binary, "utf-8", "backslashreplace", line_buffering=True)


def same_file(one, other):
    try:
        one, other = fstat(one), fstat(other)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def is_whole(stream):
    try:
        return not stream.closed and stream.encoding == "utf-8" and stream.errors == "backslashreplace"
    except ValueError:
        return False


def flush_streams():
    for stream in (sys.stdout, sys.stderr, *State.streams.values()):
        try:
            stream.flush()
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass


def restore_streams():
    """Restores the standard descriptors and streams for the next cell, whatever this one did to them."""
    for fd, saved in State.saved.items():
        if not same_file(fd, saved):
            try:
                dup2(saved, fd)
            except OSError:
                pass
    try:
        fstat(0)
    except OSError:
        # The lowest free descriptor is 0.
        os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(0, True)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = State.streams.get(fd)
        if stream is None or getattr(sys, name, None) is not stream or not is_whole(stream):
            # A new stream, because code that took the old stream's buffer will close it.
            State.streams[fd] = stream = stream_of(fd)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    stdin = getattr(sys, "stdin", None)
    if not isinstance(stdin, NoInput) or stdin.closed:
        sys.stdin = sys.__stdin__ = NoInput()


def after_fork():
    """Detaches a forked child from the protocol."""
    for fd in (State.fd, *State.saved.values()):
        try:
            close(fd)
        except OSError:
            pass
    State.fd = -1
    State.saved = {}


def end_child(raised):
    """Ends a forked child at the end of its cell, as a script would end."""
    status = 0
    if isinstance(raised, SystemExit):
        status = raised.code
        if status is None:
            status = 0
        elif not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    elif raised is not None:
        tidy(raised)
        traceback.print_exception(type(raised), raised, raised.__traceback__)
        status = 1
    leave(status & 0xFF)


class AfterImport:
    """An import hook that patches a few modules as soon as they are imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        change = CHANGES.get(name)
        if change is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is cls or not hasattr(finder, "find_spec") else finder.find_spec(name, path, target)
            if spec is None:
                continue
            loader = spec.loader
            if hasattr(loader, "exec_module") and not isinstance(loader, type):
                execute = loader.exec_module

                def exec_module(module):
                    loader.__dict__.pop("exec_module", None)
                    execute(module)
                    try:
                        change(module)
                    except Exception:
                        # An unusual version stays unpatched.
                        pass

                loader.exec_module = exec_module
            return spec
        return None


def change_pyplot(pyplot):
    def show(figure, *_arguments, **_options):
        if State.call is not None:
            show_figure(figure)
        pyplot.close(figure)

    pyplot.show = show_figures
    modules["matplotlib.figure"].Figure.show = show


def change_pandas(pandas):
    pandas.set_option("display.max_rows", 60, "display.max_columns", 20, "display.width", 120)


def change_pillow(image):
    def show(picture, *_arguments, **_options):
        display(picture)

    image.Image.show = show


def change_plotly(plotly):
    def show(figure, *_arguments, **_options):
        name = next(name for name in [f"figure_{n}.html" for n in range(1, 10_000)] if not os.path.exists(name))
        figure.write_html(name, include_plotlyjs="cdn")
        notice(f"{name} holds the plotly figure; write_image() makes a picture where kaleido is installed")

    plotly.BaseFigure.show = show


def change_ipython(ipython):
    ipython.display = display


def change_webbrowser(webbrowser):
    def open_page(*_arguments, **_options):
        notice("there is no browser at this interpreter; nothing is shown")
        return False

    webbrowser.open = webbrowser.open_new = webbrowser.open_new_tab = open_page


def change_getpass(getpass):
    getpass.getpass = refuse(EOFError, "getpass()", "put the values in the code, or read them from a file")


def change_pdb(pdb):
    pdb.Pdb.interaction = refuse(RuntimeError, "pdb", "print what you want to see")


CHANGES = {
    "matplotlib.pyplot": change_pyplot,
    "PIL.Image": change_pillow,
    "plotly.basedatatypes": change_plotly,
    "IPython.display": change_ipython,
    "IPython.core.display_functions": change_ipython,
    "webbrowser": change_webbrowser,
    "pandas": change_pandas,
    "getpass": change_getpass,
    "pdb": change_pdb,
}


def fresh_module():
    module = type(sys)("__main__")
    # Otherwise `exec` would insert the worker's own copy.
    module.__builtins__ = builtins
    modules["__main__"] = State.module = module


# --- Cells ----------------------------------------------------------------------------------------------------------


def entry(name, lines):
    return sum([len(line) for line in lines]), None, lines, name


def compile_cell(source, name):
    """Compiles a cell; returns the statements, the final expression, and whether its value is shown."""
    tree = compile(source, name, "exec", _ast.PyCF_ONLY_AST | State.future_flags, True)
    flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | State.future_flags
    last, shown = None, False
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        last = tree.body.pop()
        line = source.split("\n")[last.end_lineno - 1 :]
        rest = line[0].encode()[last.end_col_offset :].decode() + "\n" + "\n".join(line[1:])
        shown = not rest.lstrip(" \t\f\n\\").startswith(";")
    body = None
    if tree.body:
        body = compile(tree, name, "exec", flags, True)
        State.future_flags |= body.co_flags & FUTURE_ANNOTATIONS
    if last is not None:
        last = compile(_ast.Expression(last.value), name, "eval", flags | State.future_flags, True)
    return body, last, shown


def evaluate(code):
    result = eval(code, vars(State.module))
    return run_coroutine(result) if code.co_flags & CO_COROUTINE else result


def run_coroutine(coroutine):
    import asyncio

    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(State.loop)
    task = State.loop.create_task(coroutine)
    try:
        return State.loop.run_until_complete(task)
    except BaseException as error:
        if task.done():
            raise
        raised = error
    # It was interrupted between two steps and must not continue during the next cell.
    task.cancel()
    try:
        State.loop.run_until_complete(task)
    except asyncio.CancelledError as cancelled:
        # Only this exception knows the waiting line; before Python 3.11 the task raises a copy.
        source = cancelled.__context__ or cancelled
        raise raised.with_traceback(source.__traceback__) from None
    raise raised


def run_cell(call, code):
    State.cells += 1
    name = f"<cell {State.cells}>"
    source = code.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    lines = [line + "\n" for line in source.split("\n")]
    State.sources[name] = lines
    linecache.cache[name] = entry(name, lines)
    if len(State.sources) > MAX_SOURCES:
        oldest = next(iter(State.sources))
        del State.sources[oldest]
        linecache.cache.pop(oldest, None)
    modules["__main__"] = State.module
    body, last, shown = compile_cell(source, name)
    if body is not None:
        evaluate(body)
    if last is not None:
        value = evaluate(last)
        if value is not None and shown:
            show_value(call, value)


def execute(call, code):
    restore_streams()
    raised = guarded(run_cell, call, code)
    if State.fd < 0:
        guarded(end_child, raised)
        end_process(1)
    watch_sigint()
    if raised is not None:
        report(call, raised)
    if "matplotlib.pyplot" in modules:
        interrupted = isinstance(raised, KeyboardInterrupt)
        # The server will not wait for drawings any more.
        failed = guarded(drop_figures if interrupted else show_figures)
        if failed is not None and not interrupted:
            report(call, failed)
    say_what_is_missing(call)
    # Exceptions keep frames alive, and frames keep variables alive.
    raised = failed = None
    guarded(flush_streams)
    restore_streams()
    watch_sigint()


def reset(_call):
    """Resets the interpreter, except for imported modules."""
    old = State.module
    fresh_module()
    vars(old).clear()
    for name in State.sources:
        linecache.cache.pop(name, None)
    State.sources.clear()
    State.future_flags = 0
    sys.setrecursionlimit(State.recursion_limit)
    vars(builtins).clear()
    vars(builtins).update(BUILTINS)
    if "pandas" in modules:
        guarded(change_pandas, modules["pandas"])
    if "matplotlib.pyplot" in modules:
        guarded(modules["matplotlib.pyplot"].close, "all")
    loop, State.loop = State.loop, None
    if loop is not None and not loop.is_closed():
        guarded(close_loop, loop)
    guarded(gc.collect)
    try:
        os.chdir(State.workdir)
    except OSError:
        pass
    guarded(flush_streams)
    restore_streams()
    watch_sigint()


def close_loop(loop):
    import asyncio

    for task in asyncio.all_tasks(loop):
        task.cancel()
    # One iteration of the loop, in which tasks end unless they ignore the cancellation.
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


def serve():
    while True:
        State.busy = State.pending = False
        header = receive(5)
        size, kind = int.from_bytes(header[:4], "little"), header[4:]
        if not 1 <= size <= MAX_FRAME:
            leave(70)
        State.busy = kind in (b"E", b"R")
        payload = receive(size - 1)
        if kind == b"Q":
            leave()
        if not State.busy:
            continue
        try:
            request = from_json(payload.decode(), 0)[0]
            call = Call(request)
            code = str.__str__(request["code"]) if kind == b"E" else ""
        except Exception:
            leave(70)
        State.call = call
        start = clock()
        if kind == b"E":
            execute(call, code)
        else:
            reset(call)
        State.call = None
        send(b"D", {"id": call.id, "elapsed_ms": round((clock() - start) * 1000, 3)})


def main():
    options = from_json(sys.argv[1], 0)[0]
    sys.argv = [""]
    State.fd, State.workdir = options["fd"], options.get("workdir") or os.getcwd()
    os.set_inheritable(State.fd, False)
    os.register_at_fork(after_in_child=after_fork)
    watch_sigint()
    for number in _signal.valid_signals() - {SIGINT, _signal.SIGKILL, _signal.SIGSTOP}:
        handler = get_signal(number)
        # Others were not set from Python and cannot be set again.
        if handler is not None:
            State.handlers[int(number)] = handler
    State.saved = {fd: os.dup(fd) for fd in (1, 2)}
    restore_streams()
    faulthandler.enable(2)
    # Modules written by a cell can be imported, but they do not shadow installed ones.
    sys.path.append(State.workdir)
    sys.dont_write_bytecode = True
    builtins.display = display
    builtins.input = refuse(EOFError, "input()", "put the values in the code")
    builtins.exit, builtins.quit = Quitter("exit"), Quitter("quit")
    sys.breakpointhook = refuse(RuntimeError, "breakpoint()", "print what you want to see")
    BUILTINS.update(vars(builtins))
    sys.meta_path.insert(0, AfterImport)
    fresh_module()
    failed = []
    for name in options.get("preload", []):
        try:
            __import__(name)
        except BaseException:
            failed.append(name)
    gc.freeze()
    version = "{}.{}.{}".format(*sys.version_info)
    send(b"R", {"protocol": PROTOCOL, "python": version, "pid": os.getpid(), "preload_failed": failed})
    # Needed when anything fails; by then no descriptor may be left to load them.
    global linecache, traceback
    import linecache
    import traceback

    serve()


GLOBALS = globals()
BUILTINS = {}
# Called from a frame with other globals; otherwise Python 3.9 would pass on its own builtins.
eval("main()", {"main": main})
