"""Puts pictures of one size into one, two in a row: picture.py OUT PNG..."""

import sys

import cairocffi

out, *names = sys.argv[1:]
pictures = [cairocffi.ImageSurface.create_from_png(name) for name in names]
width, height = pictures[0].get_width(), pictures[0].get_height()
whole = cairocffi.ImageSurface(cairocffi.FORMAT_RGB24, 2 * width, (len(pictures) + 1) // 2 * height)
context = cairocffi.Context(whole)
for place, picture in enumerate(pictures):
    context.set_source_surface(picture, place % 2 * width, place // 2 * height)
    context.paint()
whole.write_to_png(out)
