"""The paper's Table 2 and Figure 4: the gain from soft orthogonality, and its effect on the columns."""

from statistics import fmean
from typing import TYPE_CHECKING, Final

from scipy import stats

from evidence.data import Evidence, Pretrained
from evidence.grid import Grid, difference
from evidence.pictures import note
from evidence.tables import Lines, verdict
from fieldwise.reports.run.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Final = {
    ("fm", "14 columns"): (0.0006, False),
    ("fm", "28 columns"): (0.0018, True),
    ("fm", "42 columns"): (0.0036, True),
    ("deepfm", "14 columns"): (0.0029, True),
    ("deepfm", "28 columns"): (0.0034, True),
    ("deepfm", "42 columns"): (0.0033, True),
    ("autoint", "14 columns"): (0.0013, False),
    ("autoint", "28 columns"): (0.0018, True),
    ("autoint", "42 columns"): (0.0009, False),
    ("dcnv2", "14 columns"): (0.0012, False),
    ("dcnv2", "28 columns"): (0.0027, True),
    ("dcnv2", "42 columns"): (0.0037, True),
}
"""The paper's gains in test AUC on MovieLens-1M, and whether it calls them significant."""
FIELD: Final = "genres"


def gains(with_it: Evidence, without: Evidence) -> Lines:
    """Tabulates HAM with orthogonality minus HAM without, with two tests and the paper's gain."""
    ours, theirs = Grid(with_it), Grid(without)
    rows = []
    for place in ours.places:
        found = difference(ours.cells(*place, "ham"), theirs.cells(*place, "ham"))
        gain, significant = PAPER[place]
        same = verdict(found) == ("higher" if significant else "level")
        tests = f"{found.t:.2g}", f"{found.welch:.2g}", verdict(found)
        paper = f"{gain:+.4f}", "higher" if significant else "level", "yes" if same else "no"
        rows.append((*place, f"{found}", found.pairs, *tests, *paper))
    heads = ("model", "budget", "gain", "seeds", "paired p", "Welch p", "verdict", "paper's gain", "paper", "agrees")
    return markdown_table(heads, rows)


def full_gains(with_it: Evidence, without: Evidence) -> Lines:
    """Tabulates the same difference for the full models, before any search."""
    ours, theirs = Grid(with_it), Grid(without)
    rows = []
    for model in ours.models:
        found = difference(ours.full(model), theirs.full(model))
        rows.append((model, f"{found}", found.pairs, f"{found.t:.2g}", f"{found.welch:.2g}", verdict(found)))
    return markdown_table(("full model", "gain", "seeds", "paired p", "Welch p", "verdict"), rows)


def overlap(one: Pretrained, field: str = FIELD) -> float:
    """Returns the mean absolute cosine between two columns of a field."""
    return fmean(map(abs, one.cosines[field]))


def cosines(with_it: Evidence, without: Evidence) -> Lines:
    """Tabulates the mean absolute cosine of each field over seeds, with and without, and the paired p."""
    rows = []
    for name, cardinality in with_it.about.fields.items():
        if name in with_it.pretrained[0].cosines:
            a, b = ([overlap(one, name) for one in e.pretrained] for e in (with_it, without))
            gaps = [x - y for x, y in zip(a, b, strict=True)]
            p = float(stats.ttest_1samp(gaps, 0.0).pvalue) if len(gaps) > 1 else 1.0
            width = next(w for w in range(2, 99) if w * (w - 1) // 2 == len(with_it.pretrained[0].cosines[name]))
            rows.append((name, f"{cardinality:,}", width, f"{fmean(b):.4f}", f"{fmean(a):.4f}", f"{p:.2g}"))
    return markdown_table(("field", "cardinality", "width", "without", "with", "paired p"), rows)


def costs(with_it: Evidence, without: Evidence) -> Lines:
    """Tabulates the time and validation AUC of pretraining, with and without."""
    rows = []
    for label, evidence in (("without", without), ("with", with_it)):
        runs = evidence.pretrained
        epoch = fmean(one.seconds / one.epochs for one in runs)
        valid = fmean(one.valid_auc for one in runs)
        rows.append((label, len(runs), f"{valid:.4f}", f"{fmean(one.epochs for one in runs):.1f}", f"{epoch:.2f}"))
    return markdown_table(("orthogonality", "seeds", "validation AUC", "epochs", "seconds an epoch"), rows)


def panels(figure: "Figure", with_it: Evidence, without: Evidence) -> None:
    """Draws the cosines between the columns of `genres`, seed 0, as in the paper's Figure 4."""
    for place, (label, evidence) in enumerate((("without", without), ("with", with_it)), start=1):
        axes = figure.add_subplot(1, 2, place)
        upper = evidence.pretrained[0].cosines[FIELD]
        width = next(w for w in range(2, 99) if w * (w - 1) // 2 == len(upper))
        grid = [[1.0] * width for _ in range(width)]
        pairs = [(i, j) for i in range(width) for j in range(i + 1, width)]
        for (i, j), value in zip(pairs, upper, strict=True):
            grid[i][j] = grid[j][i] = value
        drawn = axes.imshow(grid, vmin=-1, vmax=1, cmap="RdBu_r")
        mean = fmean(overlap(one) for one in evidence.pretrained)
        axes.set_title(
            f"{label} orthogonality\nmean |cosine| {mean:.2f} ({len(evidence.pretrained)} seeds)", fontsize=9
        )
        axes.set(xticks=range(width), yticks=range(width))
    figure.colorbar(drawn, ax=figure.axes, shrink=0.6)
    note(figure, f"columns of '{FIELD}', DCN-V2, MovieLens-1M, seed {with_it.pretrained[0].seed}")
