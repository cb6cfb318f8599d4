"""Find the class of an ontology by its name, and suggest a class for unknown names.

The suggestion for an unknown name is the class that shares most words with it. Rare words of
the ontology have more weight, because "fibroblast" says more than "cell". If no class shares a
word with the name, the class with the most similar spelling is suggested.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from semfs.attributes.terms import Terms

#: Labels by which people mark samples without a label.
_NO_LABELS = ("", "na", "nan", "none", "null", "unknown", "unassigned", "unlabeled")
#: Abbreviations and words of cell biology, as the Cell Ontology writes them.
_SYNONYMS = {
    "treg": "regulatory t",
    "tregs": "regulatory t",
    "nk": "natural killer",
    "nkt": "natural killer t",
    "dc": "dendritic",
    "dcs": "dendritic",
    "pdc": "plasmacytoid dendritic",
    "cdc": "conventional dendritic",
    "rbc": "erythrocyte",
    "hsc": "hematopoietic stem",
    "smc": "smooth muscle",
    "ec": "endothelial",
    "at1": "pulmonary alveolar type 1",
    "at2": "pulmonary alveolar type 2",
    "pneumocyte": "pulmonary alveolar",
    "reg": "regulatory",
    "mait": "mucosal associated invariant t",
    "gdt": "gammadelta t",
    "dnt": "double negative t",
    "ctl": "cytotoxic t",
    "ilc": "innate lymphoid",
    "microglia": "microglial",
    "γδ": "gammadelta",
    "αβ": "alphabeta",
    "i": "1",
    "ii": "2",
}
#: Abbreviations of labels. The same words mean something else inside names of the ontology.
_SHORT_LABELS = {
    "fb": "fibroblast",
    "fbs": "fibroblast",
    "fibro": "fibroblast",
    "mph": "macrophage",
    "mφ": "macrophage",
    "mo": "monocyte",
    "endo": "endothelial",
    "epi": "epithelial",
    "astro": "astrocyte",
    "oligo": "oligodendrocyte",
    "micro": "microglial",
    "opc": "oligodendrocyte precursor",
}
#: Words that names of the ontology add where labels leave them out: "CD8 T" is
#: "CD8-positive, alpha-beta T cell".
_IMPLIED = {"alphabeta", "thymusderived"}
_IMPLIED_WEIGHT = 0.5
#: Levels of a marker, as in "CD56-dim" and "CD14low".
_LEVELS = "low|dim|bright|high|intermediate"
#: Credit for a word of the ontology that begins like the given one ("reg"), or is spelled
#: nearly like it; the same word has 1. Judged on labels of published atlases.
_PREFIX_CREDIT = 0.8
_SIMILAR_CREDIT = 0.7
#: Letters from which on the beginning of a word counts: "reg", but not "t" or "b".
_SHORTEST_PREFIX = 3
#: How alike two words (names) must be spelled, by difflib's ratio.
_SIMILAR_WORDS = 0.8
_SIMILAR_NAMES = 0.75
#: Weight of a word that all names have; a word of one name in a thousand has 7 more.
_LEAST_WEIGHT = 0.1
#: Weight of a word that no name has: it may be anything, a tissue or a number.
_UNKNOWN_WEIGHT = 2.0
#: Score below which a suggestion by words would mislead more than help; see `_WordIndex`.
_LOWEST_SCORE = 0.45
#: Score of the same words in another order: 1 is left to the name itself.
_HIGHEST_SCORE = 0.99


@dataclass(frozen=True)
class Suggestion:
    """The class that a name may mean."""

    id: str
    score: float  # 1: found as given; less: by words or spelling in common


class TermIndex:
    """Finds classes of an ontology by id, name or exact synonym."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._ids_by_key = _ids_by_key(terms)

    def find(self, name: str) -> list[str]:
        """Return the ids of the classes with this name; several if the name is ambiguous.

        "hen (F:3)" is the class F:3, if its name is hen.
        """
        ids = self._ids_by_key.get(_key(name), [])
        both = re.fullmatch(r"(.+) \((\S+[:_]\S+)\)", name.strip())
        if ids or both is None:
            return ids
        by_name = self._ids_by_key.get(_key(both[1]), [])
        by_id = self._ids_by_key.get(_key(both[2]), [])
        shared = [id_ for id_ in by_id if id_ in by_name]
        return shared or list(dict.fromkeys([*by_name, *by_id]))

    def problem(self, name: str) -> str:
        """Return why a name does not identify one class that is in use, or "" if it does."""
        ids = self.find(name)
        if len(ids) > 1:
            return f"{name!r} may be {self._shown(ids)}; give the id."
        if not ids:
            return f"{name!r} is unknown; {self._remedy(name)}"
        term = self.terms[ids[0]]
        if term.obsolete:
            instead = self._shown(term.replacements) or "another class"
            return f"{name!r} is obsolete; use {instead}."
        return ""

    def suggest(self, name: str) -> Suggestion | None:
        """Return the class that a name most likely means, or None if no class is similar."""
        ids = self.find(name)
        if ids:
            term = self.terms[ids[0]]
            usable = [id_ for id_ in term.replacements if id_ in self.terms]
            if term.obsolete:
                return Suggestion(usable[0], 1.0) if usable else None
            return Suggestion(ids[0], 1.0 / len(ids))
        if is_no_label(name):
            return None
        if not _looks_like_id(name):
            by_words = self._words.nearest(name)
            if by_words is not None and by_words.score >= _LOWEST_SCORE:
                return by_words
        return self._nearest_spelling(name)

    def _remedy(self, name: str) -> str:
        if is_no_label(name):
            return (
                "if it marks samples without a label, leave it out (None "
                "or NaN in y; on the command line, --unlabeled-names)."
            )
        suggestion = self.suggest(name)
        if suggestion is None:
            return "give its id, or the name of a class of the ontology."
        return f"did you mean {self._shown([suggestion.id])}?"

    def _shown(self, ids: Iterable[str]) -> str:
        """Return classes for a message: ``'hen' (F:3) or 'cow' (F:5)``."""
        texts = []
        for id_ in ids:
            term = self.terms.get(id_)
            texts.append(id_ if term is None else f"{term.name!r} ({id_})")
        return " or ".join(texts)

    @functools.cached_property
    def _words(self) -> _WordIndex:
        return _WordIndex(self.terms)

    def _nearest_spelling(self, name: str) -> Suggestion | None:
        """Return the class in use whose name has the most similar spelling."""
        in_use = {
            key: ids[0]
            for key, ids in self._ids_by_key.items()
            if not self.terms[ids[0]].obsolete
        }
        key = _key(name)
        near = difflib.get_close_matches(
            key,
            in_use,
            n=1,
            cutoff=_SIMILAR_NAMES,
        )
        if not near:
            return None
        ratio = difflib.SequenceMatcher(None, near[0], key).ratio()
        return Suggestion(in_use[near[0]], round(ratio, 3))


class _WordIndex:
    """Finds the class whose name has most words in common with a given name."""

    def __init__(self, terms: Terms) -> None:
        """Index the words of all names of the classes in use."""
        self.ids: list[str] = []  # of each name: a class has one entry per name or synonym
        self.words: list[list[str]] = []  # of each name
        self.entries: dict[str, list[int]] = defaultdict(list)  # with each word
        for id_, term in terms.items():
            if term.obsolete:
                continue
            for name in [term.name, *term.other_names]:
                words = _words_of(name)
                for word in words:
                    self.entries[word].append(len(self.ids))
                self.ids.append(id_)
                self.words.append(words)

    def nearest(self, name: str) -> Suggestion | None:
        """Return the class whose name overlaps most with the given name.

        The overlap is the weighted Dice coefficient of the two sets of words, 2 · (weight in
        common) / (weight of the given name + weight of the candidate).
        """
        given_weight = 0.0
        common: dict[int, float] = defaultdict(float)
        for word in _words_of(name, _SYNONYMS | _SHORT_LABELS):
            matches = self._matches(word)
            if not matches:
                given_weight += _UNKNOWN_WEIGHT
                continue
            # The most common match: a beginning of many words must not count as a rare word.
            weight = min(self._weight(match) for match in matches)
            given_weight += weight
            credit_of: dict[int, float] = {}
            for match, credit in matches.items():
                for entry in self.entries[match]:
                    credit_of[entry] = max(credit, credit_of.get(entry, 0.0))
            for entry, credit in credit_of.items():
                common[entry] += credit * weight
        best: Suggestion | None = None
        for entry, weight in common.items():
            candidate_weight = sum(self._weight(word) for word in self.words[entry])
            score = round(2 * weight / (given_weight + candidate_weight), 3)
            score = min(score, _HIGHEST_SCORE)
            if best is None or score > best.score:
                best = Suggestion(self.ids[entry], score)
        return best

    def _weight(self, word: str) -> float:
        """Return the weight of a word: about -log of the share of names that contain it."""
        if word in _IMPLIED:
            return _IMPLIED_WEIGHT
        return _LEAST_WEIGHT - math.log(len(self.entries[word]) / len(self.ids))

    def _matches(self, word: str) -> dict[str, float]:
        """Return the words of the ontology that a word may mean, each with a weight."""
        if word in self.entries:
            return {word: 1.0}
        if len(word) >= _SHORTEST_PREFIX:
            longer = [known for known in self.entries if known.startswith(word)]
            if longer:
                return dict.fromkeys(longer, _PREFIX_CREDIT)
        similar = difflib.get_close_matches(
            word,
            self.entries,
            n=3,
            cutoff=_SIMILAR_WORDS,
        )
        return dict.fromkeys(similar, _SIMILAR_CREDIT)


def is_no_label(name: str) -> bool:
    """Return whether a label means that there is no label, such as "Unknown" or "nan"."""
    return name.strip().casefold() in _NO_LABELS


def _ids_by_key(terms: Terms) -> dict[str, list[str]]:
    """Return the ids of classes by name.

    If several classes have the same name, ids take precedence over names, names over synonyms,
    and synonyms over obsolete classes.
    """
    by_id: dict[str, list[str]] = {}
    by_name: dict[str, list[str]] = {}
    by_synonym: dict[str, list[str]] = {}
    by_obsolete: dict[str, list[str]] = {}

    def enter(table: dict[str, list[str]], name: str, id_: str) -> None:
        ids = table.setdefault(_key(name), [])
        if id_ not in ids:
            ids.append(id_)

    for id_, term in terms.items():
        enter(by_id, id_, id_)
        enter(by_obsolete if term.obsolete else by_name, term.name, id_)
        for name in term.other_names:
            enter(by_obsolete if term.obsolete else by_synonym, name, id_)
    # In a union the last entry wins.
    return by_obsolete | by_synonym | by_name | by_id


def _key(name: str) -> str:
    """Return a name in lower case with single spaces. CL_0000236 is the same as CL:0000236."""
    text = " ".join(name.split()).casefold().removeprefix("obsolete ")
    return re.sub(r"^([a-z]+)_(\d+)$", r"\1:\2", text)


def _looks_like_id(name: str) -> bool:
    return re.fullmatch(r"[a-z]+:\d+", _key(name)) is not None


def _words_of(name: str, synonyms: Mapping[str, str] = _SYNONYMS) -> list[str]:
    """Return the distinct words of a name: "CD4+ T cells" has cd4, t and cell.

    "CD4", "CD4+" and "CD4-positive" are the same word, because a marker without a sign is
    present. A marker that is absent, as in "CD25-" or "CD4-CD8-", must not match the marker.
    """
    text = name.casefold()
    text = re.sub(r"(?<=\w)(\+|[- ]positive\b)", " ", text)
    text = re.sub(r"(\w+)-(negative\b|(?=cd\d)|(?!\w))", r" without\1 ", text)
    # "CD14-low" is CD14, and not the "low" of another marker.
    text = re.sub(rf"(\w+)-({_LEVELS})\b", r" \1 \1\2 ", text)
    text = re.sub(rf"\b(cd\d+)({_LEVELS})\b", r" \1 \1\2 ", text)
    text = re.sub(r"\bnon[- ](?=\w)", "non", text)  # the opposite must not match
    for two_words in ("alpha-beta", "gamma-delta", "thymus-derived"):
        text = text.replace(two_words, two_words.replace("-", ""))
    words: dict[str, None] = {}
    for word in re.findall(r"[^\W_]+", text):
        single = word
        if len(word) > 3:  # plurals: cells, but not thymus, epidermis or mass
            single = re.sub(r"(?<=[^sui])s$", "", word)
        for part in synonyms.get(single, single).split():
            words[part] = None
    return list(words)
