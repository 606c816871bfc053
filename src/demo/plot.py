for place, degrees in temperatures.items():
    print(f"{place:>13} {degrees:3} °C")
try:
    import matplotlib.pyplot as plt

    plt.bar(list(temperatures), list(temperatures.values()))
    plt.ylabel("°C")
    plt.savefig("temperatures.png")
except ImportError:
    import struct, zlib

    print("matplotlib is not installed for this Python: the chart has bars only.")

    width = 10 * max(40, *temperatures.values())
    pixels = b""
    for degrees in temperatures.values():
        filled = 10 * max(degrees, 0)
        bar = bytes([0]) + bytes([47, 111, 176]) * filled + bytes([255]) * 3 * (width - filled)
        pixels += bar * 24 + (bytes([0]) + bytes([255]) * 3 * width) * 8

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    class Chart:
        def _repr_png_(self):
            size = struct.pack(">2I5B", width, 32 * len(temperatures), 8, 2, 0, 0, 0)
            parts = part(b"IHDR", size) + part(b"IDAT", zlib.compress(pixels)) + part(b"IEND", b"")
            return b"\x89PNG\r\n\x1a\n" + parts

    display(Chart())
    open("temperatures.png", "wb").write(Chart()._repr_png_())
