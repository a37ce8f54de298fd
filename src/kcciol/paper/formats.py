"""The kinds of JSON files that experiments leave, beside results of an evaluation."""

from __future__ import annotations

from kcciol.files.documents import Document

TABLE, FIGURE = Document("table"), Document("figure")
MEMBERS = Document("list of members")  # the configs of networks that train together
