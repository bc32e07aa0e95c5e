# SPDX-License-Identifier: Apache-2.0
"""Gives the section .gnu.version_r of a Go program the type that belongs to it: verneed.py PROGRAM

Go's linker writes the section without its type where a program asks for no symbol
versions. auditwheel takes the section by its name and then fails on it.
"""

from __future__ import annotations

import struct
import sys

from elftools.elf.elffile import ELFFile

SHT_GNU_VERNEED = 0x6FFFFFFE


def main(program: str) -> None:
    """Set the type of the section, which must be empty, and link it to the names of libraries."""
    with open(program, "r+b") as file:
        elf = ELFFile(file)
        names = elf.get_section_index(".dynstr")
        for index, section in enumerate(list(elf.iter_sections())):
            if section.name != ".gnu.version_r" or section["sh_type"] == "SHT_GNU_verneed":
                continue
            if section["sh_size"] != 0:
                raise SystemExit(f"release: {program}: .gnu.version_r has no type, but {section['sh_size']} bytes")
            header = elf["e_shoff"] + index * elf["e_shentsize"]
            file.seek(header + 4)  # sh_type of Elf64_Shdr
            file.write(struct.pack("<I", SHT_GNU_VERNEED))
            file.seek(header + 40)  # sh_link
            file.write(struct.pack("<I", names))


main(sys.argv[1])
