"""`compass top`: nodes, jobs and the queue in a terminal."""

from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Header, Static

from compass_abs.cli.jobs import progress
from compass_abs.controller.client import Client
from compass_abs.model import CompassError

#: Told apart by people who see colours differently, too (Okabe and Ito).
_PALETTE = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")


class TerminalDashboard(App[None]):
    """A picture a second."""

    TITLE = "compass"
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit")]
    CSS = "#cluster { height: auto; max-height: 60%; padding: 0 1; } DataTable { height: 1fr; }"

    def __init__(self, client: Client, seconds: float) -> None:
        super().__init__()
        self._client = client
        self._seconds = seconds
        self._looking = False
        self._colours = Colours()

    def compose(self) -> ComposeResult:
        """Header, cluster, jobs, footer."""
        yield Header(show_clock=True)
        with VerticalScroll(id="cluster"):
            yield Static(id="nodes")
        yield DataTable(id="jobs", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to look."""
        self.query_one("#jobs", DataTable).add_columns("job", "phase", "gpus", "step", "nodes", "reason")
        self.set_interval(self._seconds, self.refresh_picture)
        self.refresh_picture()

    def refresh_picture(self) -> None:
        """Looks once, unless the answer to an earlier look is still awaited."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look, thread=True)

    def _look(self) -> None:
        try:
            picture = self._client.get("/overview")
        except CompassError as error:
            self.call_from_thread(self._say, str(error))
        else:
            self.call_from_thread(self._show, picture)
        finally:
            self._looking = False

    def _say(self, text: str) -> None:
        self.sub_title = text

    def _show(self, picture: dict[str, Any]) -> None:
        pool = picture["pools"][0] if picture["pools"] else None
        if pool is not None:
            self.sub_title = (
                f"{pool['gpus'] - pool['free']}/{pool['gpus']} GPUs  SIF {pool['sif']:.3f}  "
                f"{picture['waiting_total']} waiting  migrations {picture['migrations']}"
            )
        self.query_one("#nodes", Static).update(cluster_text(picture["nodes"], self._colours))
        table = self.query_one("#jobs", DataTable)
        # Who has gone down the list stays there while it is made anew.
        row, down = table.cursor_row, table.scroll_y
        table.clear()
        for job in [*picture["jobs"], *picture["waiting"]]:
            nodes = ",".join(dict.fromkeys(job["nodes"])) or "-"
            size = f"{job['instances']}×{job['gpus']}"
            name = Text(job["id"], self._colours[job["id"]] if job["nodes"] else "")
            cells = (job["phase"], size, progress(job), nodes, job["reason"])
            table.add_row(name, *(Text(str(cell)) for cell in cells))
        table.move_cursor(row=min(row, max(0, table.row_count - 1)), scroll=False)
        table.scroll_to(y=down, animate=False)


class Colours(dict[str, str]):
    """Jobs get colours in the order in which they are first seen, so that those side by side differ."""

    def __missing__(self, job: str) -> str:
        self[job] = _PALETTE[len(self) % len(_PALETTE)]
        return self[job]


def cluster_text(nodes: list[dict[str, Any]], colours: Colours) -> Text:
    """A line a node, a block a GPU, a colour a job."""
    text = Text()
    for node in nodes:
        text.append(f"{node['name']:>10} ", "bold" if node["status"] == "up" else "dim")
        shown = 0
        for slot in node["slots"]:
            block = "▒" if slot["state"] == "arriving" else "█"
            text.append(block * slot["gpus"], colours[slot["job"]])
            shown += slot["gpus"]
        text.append("·" * max(0, node["gpus"] - shown), "dim")
        text.append(f" {node['status']}\n", "dim")
    return text
