"""What a column's name says about its values; used last, when values and type leave a choice."""

import re
from typing import Final, Literal

_ID_WORDS: Final = """
id ids uid uuid guid gid pid cid sid user users item items movie product sku article customer client member account
session visitor device zip zipcode postcode postal ip channel campaign ad adid advertiser publisher site app brand
category cat class code type group segment region city country state dept department store shop merchant vendor seller
model os browser host domain page hash key
"""
_AMOUNT_WORDS: Final = """
age price cost amount sum total count counts cnt num nb qty quantity duration length size width height depth distance
delay hours minutes seconds days years score rate ratio pct percent percentage balance income salary revenue budget
spend gain loss population area volume lat latitude lon longitude lng temperature time dur visits
views clicks impressions orders purchases ratings votes
"""
_IDS: Final = frozenset(_ID_WORDS.split())
_AMOUNTS: Final = frozenset(_AMOUNT_WORDS.split())
_WEIGHTS: Final = frozenset(("weight", "weights", "wgt", "wt"))
_OF_ROWS: Final = frozenset(("sample", "row", "case", "instance", "importance", "survey", "final", "example", "class"))
_WEIGHT_NAMES: Final = frozenset(("fnlwgt", "pweight", "iweight", "fweight", "sampleweight", "rowweight"))


def words(name: str) -> tuple[str, ...]:
    """Returns the lowercase words of a name: user_id, userId and UserID all are user and id."""
    apart = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3 \2\4", name)
    return tuple(word for word in re.split(r"[^a-z0-9]+", apart.lower()) if word)


def hint(name: str) -> Literal["category", "number"] | None:
    """Returns what the last word of a name that says something suggests: an id or an amount."""
    for word in reversed(words(name)):
        if word in _IDS:
            return "category"
        if word in _AMOUNTS:
            return "number"
    return None


def is_id(name: str) -> bool:
    """Whether a name says that values identify something: user_id, itemId, but not paid or bid."""
    return bool({"id", "ids", "uid", "uuid", "guid", "adid"} & set(words(name)))


def is_weight(name: str) -> bool:
    """Whether a name says that values are weights of rows: sample_weight, fnlwgt, but not weight."""
    found = set(words(name))
    return "".join(words(name)) in _WEIGHT_NAMES or bool(found & _WEIGHTS and found & _OF_ROWS)


def may_be_weight(name: str) -> bool:
    """Whether values may be weights of rows or of things: weight."""
    return bool(set(words(name)) & _WEIGHTS)
