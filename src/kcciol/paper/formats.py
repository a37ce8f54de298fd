"""The kinds of JSON files that experiments leave, beside results of an evaluation, and what all of them write alike."""

from __future__ import annotations

from kcciol.files.documents import Document

PAPER = "paper: "  # before the name of a column: the numbers that the paper prints for it
TABLE, FIGURE = Document("table"), Document("figure")
MEMBERS = Document("list of members")  # the configs of networks that train together
