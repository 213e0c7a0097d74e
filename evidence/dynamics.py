"""The paper's Figure 3: the dynamics of one real search."""

from typing import TYPE_CHECKING

from evidence.data import Evidence
from evidence.pictures import BLUE, ORANGE, note
from evidence.tables import Lines
from fieldwise.reports.run.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(evidence: Evidence) -> Lines:
    """Tabulates the key numbers of the search."""
    search = evidence.searches[0]
    at, live = search.live
    there = next(place for place, count in enumerate(live) if count <= search.limit)
    after = live[there:]
    rows = [
        ("columns before", len(search.owners)),
        ("target", search.limit),
        ("steps", f"{search.steps:,}"),
        ("steps until the target was first reached", f"{at[there] + 1:,}"),
        ("fewest and most live columns after that", f"{min(after)} and {max(after)}"),
        ("live columns at the end, before the exact finish", live[-1]),
        ("columns that came back after they were masked", f"{search.reactivated:,}"),
        ("validation AUC before the search", f"{search.auc[0]:.4f}"),
        ("lowest validation AUC after an epoch", f"{min(search.auc[1:]):.4f}"),
        ("validation AUC after the last epoch", f"{search.auc[-1]:.4f}"),
        ("validation AUC of the selected model", f"{search.selected_auc:.4f}"),
        ("and after retraining", f"{evidence.cells[0].valid_auc:.4f}"),
        ("test AUC, full and compact", f"{evidence.full[0].auc:.4f} and {evidence.cells[0].auc:.4f}"),
    ]
    return markdown_table(("what", "value"), rows)


def fields(evidence: Evidence) -> Lines:
    """Tabulates the widths before and after, and the extreme final scores, in thousandths."""
    search, cell = evidence.searches[0], evidence.cells[0]
    rows = []
    for place, (name, cardinality) in enumerate(evidence.about.fields.items()):
        own = [i for i, owner in enumerate(search.owners) if owner == place]
        last = sorted((search.scores[i][-1] * search.every * 1000 for i in own), reverse=True)
        rows.append((name, f"{cardinality:,}", len(own), cell.widths[place], f"{last[0]:+.2f}", f"{last[-1]:+.2f}"))
    heads = ("field", "cardinality", "width before", "width after", "highest score at the end", "lowest")
    return markdown_table(heads, rows)


def picture(figure: "Figure", evidence: Evidence) -> None:
    """Draws the scores of all columns over steps, and the live count with its target."""
    search = evidence.searches[0]
    whole, near, below = figure.subplots(3, 1, sharex=True)
    for axes in (whole, near):
        for kept, scores in sorted(zip(search.kept, search.scores, strict=True)):
            values = [score * search.every for score in scores]
            axes.plot(search.moments, values, color=BLUE if kept else ORANGE, linewidth=0.7, alpha=0.7)
        axes.axhline(0, color="black", linewidth=0.8)
    whole.plot([], [], color=BLUE, label="kept")
    whole.plot([], [], color=ORANGE, label="masked at the end")
    whole.legend(fontsize=8, frameon=False)
    whole.set(ylabel="score of a column")
    near.set(ylabel="the same, near zero", ylim=(-0.0008, 0.0008))
    below.plot(search.live[0], search.live[1], color=BLUE, linewidth=0.8)
    below.axhline(search.limit, color=ORANGE, linewidth=1, label=f"target {search.limit}")
    below.set(xlabel="steps", ylabel="live columns", ylim=(0, None))
    below.legend(fontsize=8, frameon=False)
    note(figure, f"HAM on DCN-V2, MovieLens-1M, {search.budget}, seed {search.seed}")
