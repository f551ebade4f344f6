"""Puts a page together: python3 compose.py PAGE.json PICTURE.png.

The curves are graphite-web's pictures; headings, numbers and bars are drawn here.
"""

import json
import struct
import sys
import zlib
from array import array
from collections import Counter

import cairocffi as cairo

PAGE, PANEL, EDGE, TEXT, FAINT = "111217", "181B1F", "2A2D33", "CCCCDC", "8E8E99"


def paint(context, colour, alpha=1.0):
    context.set_source_rgba(*(int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)), alpha)


def write(context, text, x, y, size, colour=TEXT, bold=False, align=0.0):
    weight = cairo.FONT_WEIGHT_BOLD if bold else cairo.FONT_WEIGHT_NORMAL
    context.select_font_face("DejaVu Sans", cairo.FONT_SLANT_NORMAL, weight)
    context.set_font_size(size)
    width = context.text_extents(text)[4]
    paint(context, colour)
    context.move_to(x - width * align, y)
    context.show_text(text)
    return width


def numbers(context, part, x, y, w, h):
    values = part["values"]
    for index, value in enumerate(values):
        middle = x + w * (index + 0.5) / len(values)
        size = 26 if len(value["text"]) < 9 and len(values) == 1 else 20
        write(context, value["text"], middle, y + h / 2 + 14, size, value["colour"], True, 0.5)
        if len(values) > 1:
            write(context, value["name"], middle, y + h / 2 + 34, 11, FAINT, False, 0.5)


def bars(context, part, x, y, w, h):
    values = sorted(part["values"], key=lambda value: -value["value"])
    values = [value for value in values if value["value"] > 0][:8]
    most = part["max"] or max((value["value"] for value in values), default=1)
    line = (h - 40) / max(len(values), 6)
    for index, value in enumerate(values):
        top = y + 38 + index * line
        write(context, value["name"], x + 12, top + 10, 11)
        width = w - 100
        paint(context, EDGE)
        context.rectangle(x + 12, top + 15, width, line - 24)
        context.fill()
        part_of = min(value["value"] / most, 1.0)
        paint(context, value["colour"])
        context.rectangle(x + 12, top + 15, max(width * part_of, 2), line - 24)
        context.fill()
        write(context, value["text"], x + w - 14, top + 15 + (line - 24) / 2 + 5, 13, TEXT, True, 1.0)


def table(context, part, x, y, w, h):
    right = [x + w - 12 - 76 * back for back in (2, 1, 0)]
    write(context, part["heading"], x + 12, y + 44, 11, FAINT)
    for heading, end in zip(("Now", "Mean", "Trend"), right):
        write(context, heading, end, y + 44, 11, FAINT, False, 1.0)
    for index, (name, *figures, course) in enumerate(part["lines"][: int((h - 56) / 22)]):
        line = y + 66 + index * 22
        write(context, name if len(name) < 21 else name[:19] + "…", x + 12, line, 11, "8AB8FF")
        for figure, end in zip(figures, right):
            write(context, figure, end, line, 11, TEXT, end == right[0], 1.0)
        low, high = min(course), max(course)
        for place, value in enumerate(course):
            part_of = (value - low) / (high - low) if high > low else 0
            context.line_to(right[2] - 60 + 60 * place / max(len(course) - 1, 1), line + 2 - 12 * part_of)
        paint(context, "8AB8FF")
        context.set_line_width(1)
        context.stroke()


def save(surface, picture, colours):
    """As PNG with a palette, a quarter of the size: the curves' colours and the commonest ones, the others as the nearest of them."""
    width, height = surface.get_width(), surface.get_height()
    # Bit 0 of each colour cannot be seen; without it there are far fewer.
    pixels = array("I", (pixel & 0xFCFCFC for pixel in array("I", bytes(surface.get_data()))))
    row = surface.get_stride() // 4
    counted = Counter(pixels)
    kept = [int(colour, 16) & 0xFCFCFC for colour in colours]
    palette = (kept + [colour for colour, _ in counted.most_common(64) if colour not in kept])[:64]
    split = lambda colour: (colour >> 16, colour >> 8 & 255, colour & 255)  # noqa: E731
    parts = [split(colour) for colour in palette]
    index = {colour: number for number, colour in enumerate(palette)}
    for colour in counted:
        if colour not in index:
            red, green, blue = split(colour)
            distance = [(r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2 for r, g, b in parts]
            index[colour] = distance.index(min(distance))
    lines = (bytes(index[pixel] for pixel in pixels[y * row : y * row + width]) for y in range(height))
    data = zlib.compress(b"".join(b"\0" + line for line in lines), 9)

    def chunk(name, content):
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    with open(picture, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)))
        file.write(chunk(b"PLTE", b"".join(bytes(part) for part in parts)))
        file.write(chunk(b"IDAT", data))
        file.write(chunk(b"IEND", b""))


def main(page, picture):
    page = json.load(open(page))
    column, line = page["cell"]
    head = 46
    lines = max(part["place"]["y"] + part["place"]["h"] for part in page["parts"])
    width, height = 24 * column, head + lines * line + 8
    surface = cairo.ImageSurface(cairo.FORMAT_RGB24, width, height)
    context = cairo.Context(surface)
    paint(context, PAGE)
    context.paint()
    write(context, page["title"], 14, 31, 19, TEXT, True)
    for part in page["parts"]:
        place = part["place"]
        x, y = place["x"] * column, head + place["y"] * line
        w, h = place["w"] * column, place["h"] * line
        if part["kind"] == "row":
            write(context, "▾ " + part["title"], 14, y + 21, 14, TEXT, True)
            continue
        x, y, w, h = x + 4, y + 4, w - 8, h - 8
        paint(context, PANEL)
        context.rectangle(x, y, w, h)
        context.fill_preserve()
        paint(context, EDGE)
        context.set_line_width(1)
        context.stroke()
        end = write(context, part["title"], x + 10, y + 20, 13, TEXT, True)
        write(context, part.get("unit", ""), x + 20 + end, y + 20, 11, FAINT)
        if part["kind"] == "curves":
            context.set_source_surface(cairo.ImageSurface.create_from_png(part["file"]), x + 8, y + 30)
            context.paint()
        elif part["kind"] == "numbers":
            numbers(context, part, x, y, w, h)
        elif part["kind"] == "table":
            table(context, part, x, y, w, h)
        elif part["kind"] == "words":
            write(context, part["words"], x + w / 2, y + h / 2, 12, FAINT, False, 0.5)
        else:
            bars(context, part, x, y, w, h)
    surface.flush()
    save(surface, picture, page["colours"])


main(*sys.argv[1:])
