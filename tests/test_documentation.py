"""What the documents point at is there: links, anchors, commands of `compass` and `make`, modules, files, packages."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from compass_abs.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
#: Where a program tells users to read on.
TOLD = [path for folder in ("src", "deploy", "benchmarks") for path in (ROOT / folder).rglob("*")]
TOLD = [path for path in TOLD if path.suffix in (".py", ".yaml", ".sh", ".js", ".html")]
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_FENCE = re.compile(r"^(```+|~~~+)(\w*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_ENDS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "(", ")")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("\n", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What links may point at inside a page, as GitHub names headings."""
    found: dict[str, int] = {}
    slugs = []
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = found[slug] = found.get(slug, -1) + 1
        slugs.append(f"{slug}-{number}" if number else slug)
    named = re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
    return frozenset([*slugs, *named])


def broken(page: Path) -> list[str]:
    """Relative links that lead nowhere."""
    found = []
    for target in _LINK.findall(_INLINE.sub("", prose(page))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            found.append(f"{target}: there is no such file")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            found.append(f"{target}: there is no such heading")
    return found


class Command(NamedTuple):
    words: tuple[str, ...]
    #: Whole, as somebody would copy it, or only named in a sentence.
    whole: bool


def commands(page: Path, program: str) -> Iterator[Command]:
    """The command lines of a program, in blocks and in sentences."""
    for _, language, block in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language in ("bash", "console", "sh", "shell", ""):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                if language == "console" and not line.startswith("$ "):
                    continue  # what the command printed
                if not language and not line.startswith(("$ ", f"{program} ")):
                    continue
                yield from of_line(line.removeprefix("$ "), program, whole=True)
    for code in _INLINE.findall(prose(page)):
        yield from of_line(code, program, whole=False)


def of_line(line: str, program: str, whole: bool) -> Iterator[Command]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.commenters = "#" if re.search(r"(^|\s)#", line) else ""
    lexer.wordchars += "$@%+^!:,[]{}*?"
    try:
        words = list(lexer)
    except ValueError:  # an apostrophe in something that is no command line
        return
    start = True
    for number, word in enumerate(words):
        if start and re.fullmatch(r"\w+=.*", word):
            continue
        if start and Path(word).name == program:
            rest = words[number + 1 :]
            end = next((k for k, each in enumerate(rest) if each in _ENDS), len(rest))
            yield Command(tuple(rest[:end]), whole)
        start = word in ("|", "||", "&&", "&", ";", "(", "nohup", "time", "sudo", "exec", "$")


def misread(command: Command) -> str:
    """What `compass` would say of the command line, without carrying it out; empty for nothing."""
    current: Any = typer.main.get_command(app)
    words = list(command.words)
    while words and hasattr(current, "commands"):
        if words[0].startswith("-"):
            return "" if words[0] in ("--help", "-h", "--version", "--install-completion") else f"no option {words[0]}"
        if words[0] not in current.commands:
            return f"no command {words[0]}"
        current = current.commands[words.pop(0)]
    if hasattr(current, "commands") or "--help" in words or "-h" in words:
        return ""
    try:
        current.make_context("compass", words)
    except Exception as error:
        said = str(getattr(error, "message", error))
        missing = type(error).__name__ == "MissingParameter"
        placeholder = "Invalid value" in str(getattr(error, "format_message", str)()) and not command.whole
        return "" if (missing or placeholder) and not command.whole else f"{type(error).__name__}: {said}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_a_page_are_understood(page: Path) -> None:
    assert [(" ".join(c.words), said) for c in commands(page, "compass") if (said := misread(c))] == []


def test_commands_are_found_and_mistakes_in_them_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n`compass nosuch` and `compass audit` and `compass explain --gpu 3`, but the compass needle\n"
        "```bash\nA=1 .venv/bin/compass simulate demo --nodes 4 | head   # compass x\n"
        "compass simulate\ncat x | compass audit --slurm=3 && compass ps \\\n  --al\n```\n"
        "```console\n$ compass --version\ncompass 0.1.0\n```\n```yaml\ncompass: no\n```\n"
        "[a](page.md#one) [b](page.md#two) [c](none.md) [d](https://example.com) `[e](none.md)`\n"
    )
    found = list(commands(page, "compass"))
    assert [" ".join(c.words) for c in found if not misread(c)] == ["simulate demo --nodes 4", "--version", "audit"]
    assert [c.words[0] for c in found if misread(c)] == ["simulate", "audit", "ps", "nosuch", "explain"]
    assert broken(page) == ["page.md#two: there is no such heading", "none.md: there is no such file"]


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {
        (name(page), word)
        for page in PAGES
        for command in commands(page, "make")
        for word in command.words[:1]
        if "=" not in word and not word.startswith("-")
    }
    assert len(used) > 10
    assert {(page, word) for page, word in used if word not in targets} == set()


def test_modules_that_pages_run_exist() -> None:
    modules = {m for page in PAGES for m in re.findall(r"-m (compass_abs[\w.]*)", page.read_text(encoding="utf-8"))}
    assert len(modules) > 2
    assert {module for module in modules if find_spec(module) is None} == set()


def test_files_of_the_repository_that_pages_name_exist() -> None:
    """Paths in code that begin with one of our folders; `NAME` and * stand for something."""
    pattern = re.compile(r"^(?:\./)?((?:src|docs|deploy|benchmarks|tests|requirements|\.ci)/[\w./-]*[\w/])$")
    named = {
        (name(page), found[1])
        for page in PAGES
        for code in _INLINE.findall(prose(page))
        if (found := pattern.match(code))
    }
    assert len(named) > 10
    assert {(page, path) for page, path in named if not (ROOT / path).exists()} == set()


def test_pages_that_programs_send_people_to_exist() -> None:
    sent = {
        (name(path), *found)
        for path in TOLD
        for found in re.findall(r"(docs/[\w/-]+\.md)(?:#([\w-]+))?", path.read_text(encoding="utf-8"))
    }
    assert len(sent) > 10
    assert {each for each in sent if not (ROOT / each[1]).exists()} == set()
    assert {each for each in sent if each[2] and each[2] not in anchors(ROOT / each[1])} == set()


def test_every_page_can_be_reached_from_the_readme_and_begins_with_a_heading() -> None:
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        for target in _LINK.findall(prose(page)):
            path = target.partition("#")[0]
            if path and ":" not in path:
                ahead.append((page.parent / path).resolve())
    assert {name(page) for page in PAGES} - {name(page) for page in reached} == set()
    for page in PAGES:
        assert re.match(r"# \S.*\n\n", page.read_text(encoding="utf-8")), page


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for group in project["optional-dependencies"].values() for each in group),
    ]
    rows = [line.lower() for line in (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").splitlines()]
    first = " ".join(row.split("|")[1] for row in rows if row.startswith("|"))
    assert [each for each in wanted if re.split(r"[^\w.-]", each)[0].lower() not in first] == []
