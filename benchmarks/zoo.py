"""Small public models of other libraries, each with one call, for `any_model.py` and the interop tests.

FuxiCTR's wheel does not contain its models, so its entries need the `model_zoo` folder of a checkout.
"""

import importlib.util
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROWS = (40, 7, 30, 12, 50, 5, 20)
"""Number of ids in each field."""
WIDTH = 8
BATCH = 48
LENGTH = 5
"""Number of positions in the history fields."""
Built = tuple[nn.Module, tuple[Any, ...]]
Builder = Callable[[], Built]
MLP = {"dims": [16, 8], "dropout": 0.1}


def models(libraries: list[str], zoo: Path | None) -> Iterator[tuple[str, str, Builder]]:
    """Yield library, model name and a function that builds the model."""
    for library in libraries:
        if library == "fuxictr" and zoo is None:
            continue
        yield from ((library, name, build) for name, build in LIBRARIES[library](zoo).items())


def _ids() -> dict[str, torch.Tensor]:
    return {f"f{i}": torch.randint(1, rows, (BATCH,)) for i, rows in enumerate(ROWS)}


def _history() -> torch.Tensor:
    found = torch.randint(1, ROWS[0], (BATCH, LENGTH))
    found[::3, 3:] = 0
    return found


# ---- torch-rechub


def rechub(_: Path | None) -> dict[str, Builder]:
    """Yield torch-rechub's ranking models, sequence models and multi-task models."""
    from torch_rechub.basic.features import DenseFeature, SequenceFeature, SparseFeature
    from torch_rechub.models import multi_task, ranking

    def sparse() -> list[Any]:
        return [SparseFeature(f"f{i}", rows, WIDTH) for i, rows in enumerate(ROWS)]

    def plain(build: Callable[[list[Any]], nn.Module]) -> Built:
        return build(sparse()), (_ids(),)

    def sequence(build: Callable[[list[Any], list[Any], list[Any]], nn.Module]) -> Built:
        history = [SequenceFeature("history", ROWS[0], WIDTH, pooling="concat", shared_with="f0", padding_idx=0)]
        features = sparse()
        return build(features[1:], history, features[:1]), ({**_ids(), "history": _history()},)

    def autoint() -> Built:
        dense = [DenseFeature("d0")]
        model = ranking.AutoInt(sparse(), dense, num_layers=2, mlp_params=MLP)
        return model, ({**_ids(), "d0": torch.rand(BATCH)},)

    towers = [{"dims": [8]}, {"dims": [8]}]
    both = ["classification", "classification"]
    return {
        "WideDeep": lambda: plain(lambda f: ranking.WideDeep(f[:3], f, MLP)),
        "DeepFM": lambda: plain(lambda f: ranking.DeepFM(f, f, MLP)),
        "DCN": lambda: plain(lambda f: ranking.DCN(f, 2, MLP)),
        "DCNv2": lambda: plain(lambda f: ranking.DCNv2(f, 2, MLP, use_low_rank_mixture=False)),
        "DCNv2 (low rank)": lambda: plain(lambda f: ranking.DCNv2(f, 2, MLP)),
        "EDCN": lambda: plain(lambda f: ranking.EDCN(f, 2, MLP)),
        "AFM": lambda: plain(lambda f: ranking.AFM(f, WIDTH)),
        "FiBiNet": lambda: plain(lambda f: ranking.FiBiNet(f, MLP)),
        "AutoInt": autoint,
        "DIN": lambda: sequence(lambda f, h, t: ranking.DIN(f, h, t, {"dims": [16]}, {"dims": [8]})),
        "BST": lambda: sequence(lambda f, h, t: ranking.BST(f, h, t, {"dims": [16]}, nhead=2)),
        "SharedBottom": lambda: plain(lambda f: multi_task.SharedBottom(f, both, MLP, towers)),
        "MMOE": lambda: plain(lambda f: multi_task.MMOE(f, both, 3, {"dims": [16]}, towers)),
        "PLE": lambda: plain(lambda f: multi_task.PLE(f, both, 1, 2, 1, {"dims": [16]}, towers)),
    }


# ---- DeepCTR-Torch


def deepctr(_: Path | None) -> dict[str, Builder]:
    """Yield DeepCTR-Torch's models, which read all fields from one float matrix."""
    from deepctr_torch import models as found
    from deepctr_torch.inputs import DenseFeat, SparseFeat

    columns = [SparseFeat(f"f{i}", rows, WIDTH) for i, rows in enumerate(ROWS)]
    with_dense = [*columns, DenseFeat("d0", 1)]

    def build(name: str, own: list[Any], linear: bool, **settings: Any) -> Built:
        kind = vars(found)[name]
        model = kind(own, own, **settings) if linear else kind(own, **settings)
        ids = [torch.randint(0, rows, (BATCH,)).float() for rows in ROWS]
        if len(own) > len(columns):
            ids.append(torch.rand(BATCH))
        return model, (torch.stack(ids, 1),)

    deep = {"dnn_hidden_units": (16, 8)}
    table: dict[str, tuple[str, list[Any], bool, dict[str, Any]]] = {
        "DeepFM": ("DeepFM", with_dense, True, {**deep, "dnn_use_bn": True}),
        "WDL": ("WDL", with_dense, True, deep),
        "DCN (vector)": ("DCN", with_dense, True, deep),
        "DCN (matrix)": ("DCN", with_dense, True, {**deep, "cross_parameterization": "matrix"}),
        "DCNMix": ("DCNMix", with_dense, True, {**deep, "low_rank": 4}),
        "xDeepFM": ("xDeepFM", with_dense, True, {**deep, "cin_layer_size": (8, 8)}),
        "AutoInt": ("AutoInt", with_dense, True, deep),
        "NFM": ("NFM", with_dense, True, deep),
        "PNN": ("PNN", with_dense, False, deep),
        "FiBiNET": ("FiBiNET", with_dense, True, deep),
        "AFM": ("AFM", columns, True, {}),
        "AFN": ("AFN", columns, True, {"ltl_hidden_size": 8, "afn_dnn_hidden_units": (16,)}),
        "IFM": ("IFM", with_dense, True, deep),
    }
    return {label: partial(build, name, own, linear, **more) for label, (name, own, linear, more) in table.items()}


# ---- RecBole


class _Dataset:
    """The part of a RecBole dataset that its context-aware models use."""

    def __init__(self) -> None:
        from recbole.utils import FeatureType

        self.field2type = {f"f{i}": FeatureType.TOKEN for i in range(len(ROWS))}
        self.field2type["d0"] = FeatureType.FLOAT

    def fields(self, source: Any = None) -> list[str]:
        return list(self.field2type)

    def num(self, field: str) -> int:
        return ROWS[int(field[1:])] if field[0] == "f" else 2


def recbole(_: Path | None) -> dict[str, Builder]:
    """Yield RecBole's context-aware models, which have one table for all fields."""
    import recbole.properties
    import yaml
    from recbole.model import context_aware_recommender as found

    def build(name: str, **more: Any) -> Built:
        folder = Path(next(iter(recbole.properties.__path__)))
        values = yaml.safe_load((folder / "model" / f"{name}.yaml").read_text()) or {}
        shared = {"LABEL_FIELD": "label", "embedding_size": WIDTH, "device": "cpu", "numerical_features": ["d0"]}
        config = defaultdict(lambda: None, {**values, **shared, **more})
        rows = {**_ids(), "d0": torch.stack([torch.rand(BATCH), torch.ones(BATCH)], 1)}
        return vars(found)[name](config, _Dataset()), (rows,)

    mlp = {"mlp_hidden_size": [16, 8]}
    table: dict[str, dict[str, Any]] = {
        "DeepFM": mlp, "DCN": mlp, "DCNV2": {**mlp, "mixed": False, "structure": "parallel"}, "AutoInt": mlp,
        "xDeepFM": {**mlp, "cin_layer_size": [8, 8]}, "WideDeep": mlp, "NFM": mlp, "PNN": mlp, "AFM": {}, "FNN": mlp,
    }  # fmt: skip
    return {name: partial(build, name, **more) for name, more in table.items()}


# ---- FuxiCTR

FUXICTR: dict[str, tuple[str, dict[str, Any]]] = {
    "AFM": ("AFM/src/AFM.py", {}),
    "AFN": ("AFN/src/AFN.py", {"dnn_hidden_units": [8], "afn_hidden_units": [8]}),
    "AOANet": ("AOANet/src/AOANet.py", {"dnn_hidden_units": [8], "batch_norm": True}),
    "AutoInt": ("AutoInt/src/AutoInt.py", {"dnn_hidden_units": [8], "layer_norm": True}),
    "DCN": ("DCN/DCN_torch/src/DCN.py", {"dnn_hidden_units": [8], "batch_norm": True}),
    "DCNv2": ("DCNv2/src/DCNv2.py", {"parallel_dnn_hidden_units": [8], "batch_norm": True}),
    "DESTINE": ("DESTINE/src/DESTINE.py", {"dnn_hidden_units": [8]}),
    "DeepCrossing": ("DeepCrossing/src/DeepCrossing.py", {"residual_blocks": [8], "batch_norm": True}),
    "DeepFM": ("DeepFM/DeepFM_torch/src/DeepFM.py", {"hidden_units": [8], "batch_norm": True}),
    "DIN": (
        "DIN/src/DIN.py",
        {"dnn_hidden_units": [8], "din_target_field": ["f0"], "din_sequence_field": ["history"], "batch_norm": True},
    ),
    "DLRM": ("DLRM/src/DLRM.py", {"top_mlp_units": [8], "bottom_mlp_units": [8]}),
    "DNN": ("DNN/DNN_torch/src/DNN.py", {"hidden_units": [8], "batch_norm": True}),
    "EDCN": ("EDCN/src/EDCN.py", {"batch_norm": True}),
    "FFM": ("FFM/src/FFM.py", {}),
    "FiBiNET": ("FiBiNET/src/FiBiNET.py", {"hidden_units": [8], "batch_norm": True}),
    "FiGNN": ("FiGNN/src/FiGNN.py", {}),
    "FinalMLP": ("FinalMLP/src/FinalMLP.py", {"mlp1_batch_norm": True, "mlp2_batch_norm": True}),
    "FinalNet": ("FinalNet/src/FinalNet.py", {"block1_hidden_units": [8], "block2_hidden_units": [8]}),
    "FmFM": ("FmFM/src/FmFM.py", {}),
    "FwFM": ("FwFM/src/FwFM.py", {}),
    "GDCN": ("GDCN/src/GDCN.py", {"dnn_hidden_units": [8]}),
    "HOFM": ("HOFM/src/HOFM.py", {}),
    "InterHAt": ("InterHAt/src/InterHAt.py", {"hidden_units": [8]}),
    "LorentzFM": ("LorentzFM/src/LorentzFM.py", {}),
    "MaskNet": ("MaskNet/src/MaskNet.py", {"dnn_hidden_units": [8, 8]}),
    "NFM": ("NFM/src/NFM.py", {"hidden_units": [8], "batch_norm": True}),
    "PNN": ("PNN/src/PNN.py", {"hidden_units": [8], "batch_norm": True}),
    "WideDeep": ("WideDeep/WideDeep_torch/src/WideDeep.py", {"hidden_units": [8]}),
    "WuKong": ("WuKong/src/WuKong.py", {"lcb_features": 4, "fmb_features": 4, "num_wukong_layers": 2}),
    "xDeepFM": ("xDeepFM/src/xDeepFM.py", {"dnn_hidden_units": [8], "cin_hidden_units": [4, 4]}),
}
"""File in the zoo, and settings; the class has the model's name, except for the names below."""
CLASSES = {"GDCN": "GDCNP"}


def fuxictr(zoo: Path | None) -> dict[str, Builder]:
    """Yield the models of FuxiCTR's zoo."""
    from fuxictr.features import FeatureMap

    assert zoo is not None

    def build(name: str) -> Built:
        path, settings = FUXICTR[name]
        specs: dict[str, dict[str, Any]] = {
            f"f{i}": {"source": "", "type": "categorical", "padding_idx": 0, "vocab_size": rows}
            for i, rows in enumerate(ROWS)
        }
        rows: dict[str, torch.Tensor] = _ids()
        if name == "DLRM":
            specs["d0"] = {"source": "", "type": "numeric"}
            rows["d0"] = torch.rand(BATCH, 1)
        if name == "DIN":
            history = {"type": "sequence", "vocab_size": ROWS[0], "max_len": LENGTH, "share_embedding": "f0"}
            specs["history"] = {"source": "", "padding_idx": 0, "feature_encoder": None, **history}
            rows["history"] = _history()
        features = FeatureMap("x", tempfile.mkdtemp())
        features.features.update(specs)
        features.labels, features.default_emb_dim = ["label"], WIDTH
        features.num_fields = features.get_num_fields()
        features.set_column_index()
        spec = importlib.util.spec_from_file_location(name, zoo / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = vars(module)[CLASSES.get(name, name)](
            features, embedding_dim=WIDTH, optimizer="adam", loss="binary_crossentropy", metrics=["AUC"], verbose=0,
            task="binary_classification", model_root=tempfile.mkdtemp(), **settings,
        )  # fmt: skip
        return model, ({**rows, "label": torch.randint(0, 2, (BATCH,)).float()},)

    return {name: partial(build, name) for name in FUXICTR}


# ---- TorchRec, and a hand-written module


def torchrec(_: Path | None) -> dict[str, Builder]:
    """Yield TorchRec's DLRM models over an EmbeddingBagCollection."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM, DLRM_DCN

    def build(name: str) -> Built:
        tables = [
            EmbeddingBagConfig(name=f"t{i}", embedding_dim=WIDTH, num_embeddings=rows, feature_names=[f"f{i}"])
            for i, rows in enumerate(ROWS)
        ]
        bags = EmbeddingBagCollection(tables=tables)
        if name == "DLRM":
            model: nn.Module = DLRM(bags, 3, [16, WIDTH], [16, 1])
        else:
            model = DLRM_DCN(bags, 3, [16, WIDTH], [16, 1], dcn_num_layers=2, dcn_low_rank_dim=4)
        lengths = torch.randint(0, 3, (len(ROWS) * BATCH,))
        per_field = lengths.view(len(ROWS), BATCH).sum(1).tolist()
        values = torch.cat([torch.randint(0, rows, (n,)) for rows, n in zip(ROWS, per_field, strict=True)])
        given = KeyedJaggedTensor([f"f{i}" for i in range(len(ROWS))], values, lengths=lengths)
        return model, (torch.rand(BATCH, 3), given)

    return {"DLRM": partial(build, "DLRM"), "DLRM_DCN": partial(build, "DLRM_DCN")}


class Transformer(nn.Module):
    """A hand-written module: attention over fields with LayerNorm, and bags."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS)
        self.tags = nn.EmbeddingBag(30, WIDTH, mode="mean")
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.deep = nn.Sequential(
            nn.Linear((len(ROWS) + 1) * WIDTH, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)
        )

    def forward(self, ids: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        """Return logits (B,)."""
        x = torch.stack([*(table(ids[:, i]) for i, table in enumerate(self.fields)), self.tags(tags)], 1)
        seen, _ = self.attention(x, x, x)
        found: torch.Tensor = self.deep(torch.cat([self.norm(x + seen)[:, :1], x[:, 1:]], 1).flatten(1)).squeeze(1)
        return found


def by_hand(_: Path | None) -> dict[str, Builder]:
    """Yield modules as users write them."""

    def build() -> Built:
        return Transformer(), (torch.stack(list(_ids().values()), 1), torch.randint(0, 30, (BATCH, 4)))

    return {"attention, LayerNorm": build}


LIBRARIES: dict[str, Callable[[Path | None], dict[str, Builder]]] = {
    "fuxictr": fuxictr,
    "deepctr-torch": deepctr,
    "torch-rechub": rechub,
    "recbole": recbole,
    "torchrec": torchrec,
    "by hand": by_hand,
}
