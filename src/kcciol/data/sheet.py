"""A picture of a class set: a row for each class."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from kcciol.data.classset import ClassSet
from kcciol.errors import UserError, visible
from kcciol.files import replacing

GAP = 2  # pixels between images
MARGIN = 160  # width of the names
ROW = 14  # least height of a row, so that names do not touch
LINE = (208, 208, 208)
INK = (32, 32, 32)


def contact_sheet(classset: ClassSet, path: Path, classes: int = 20, samples: int = 10) -> None:
    """Write the first so many images of the first so many classes as a PNG; an image that is not there stays grey."""
    _refuse(classset, path, classes, samples)
    classes, samples = min(classes, len(classset)), min(samples, classset.images.shape[1])
    _, height, width = classset.image_shape
    row = max(height, ROW)
    sheet = Image.new("RGB", (MARGIN + samples * (width + GAP) + GAP, classes * (row + GAP) + GAP), LINE)
    pen = ImageDraw.Draw(sheet)
    for i in range(classes):
        top = GAP + i * (row + GAP)
        pen.rectangle((0, top, MARGIN - 1, top + row - 1), fill="white")
        _write_name(pen, classset.names[i], top, row)
        for k in range(min(samples, int(classset.counts[i]))):
            sheet.paste(_picture(classset, i, k), (MARGIN + GAP + k * (width + GAP), top + (row - height) // 2))
    try:
        with replacing(path) as part:
            sheet.save(part, format="PNG")
    except OSError as error:
        raise UserError(
            f"The sheet {path} cannot be written ({error.strerror or error}): choose another path."
        ) from None


def _refuse(classset: ClassSet, path: Path, classes: int, samples: int) -> None:
    for name, value in (("classes", classes), ("samples", samples)):
        if value < 1:
            raise UserError(f"A sheet of {value} {name} has nothing to show: ask for 1 or more.")
    if len(classset) == 0:
        raise UserError("The split has no classes to show: choose another.")
    if path.suffix.lower() != ".png":
        raise UserError(f"The sheet {path} is written as PNG: choose a path that ends in .png.")
    if not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} for the sheet does not exist: make it or choose another path.")
    if path.is_dir():
        raise UserError(f"The sheet {path} is a folder: choose another path.")


def _picture(classset: ClassSet, i: int, k: int) -> Image.Image:
    pixels = classset.images[i, k].permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _write_name(pen: ImageDraw.ImageDraw, name: str, top: int, row: int) -> None:
    """The name, its beginning cut where it is too long: the end tells classes of one alphabet apart."""
    font = ImageFont.load_default()
    text = visible(name).encode("ascii", "replace").decode()  # Pillow's own font has hardly more
    room = MARGIN - 8
    if pen.textlength(text, font) > room:
        while text and pen.textlength("..." + text, font) > room:
            text = text[1:]
        text = "..." + text
    pen.text((4, top + row // 2), text, fill=INK, font=font, anchor="lm" if _scalable(font) else None)


def _scalable(font: object) -> bool:
    return isinstance(font, ImageFont.FreeTypeFont)
