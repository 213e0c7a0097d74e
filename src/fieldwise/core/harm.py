"""Harmful fields in plain words: the evidence of a record, for the terminal and for reports."""

from fieldwise.core.records import Harm


def sentence(harm: Harm) -> str:
    """What was found and done about a suspected field."""
    name = f"Field '{harm.field}'"
    costs = f"hiding it costs {harm.train:.3f} of AUC there, {harm.valid:.3f} on validation rows"
    if harm.without_auc is None:
        return (
            f"{name} may be harmful: it helps mostly on rows seen in training ({costs}). No model was trained without "
            "it, because only the library's own models can leave a field out. Compare with a dataset without it."
        )
    aucs = f"without it validation AUC is {harm.without_auc:.4f} instead of {harm.with_auc:.4f}"
    if harm.first_order:
        return (
            f"{name} keeps only its first-order weights: it helps on rows seen in training ({costs}) and hurts on "
            f"others; {aucs}, with first-order weights alone {harm.first_order_auc:.4f}."
        )
    if harm.left_out:
        return f"{name} was left out: it helps on rows seen in training ({costs}) and hurts on others; {aucs}."
    return f"{name} was kept: it helps mostly on rows seen in training ({costs}), but {aucs}, which is no clear gain."
