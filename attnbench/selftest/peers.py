"""Other tools' rules on the samples of a cell; one that fails is named and left out."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.types.verdict import WORDS, SampleSets, VerdictRule, Word
from attnbench.types.words import clean, one_line


class Peers:
    """Asks rules, and remembers which of them failed. faults: by name, in words."""

    def __init__(self, rules: Iterable[VerdictRule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self.faults: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The rules that have not failed so far."""
        return tuple(name for name in self._rules if name not in self.faults)

    def words(self, contender: SampleSets, baseline: SampleSets) -> dict[str, Word]:
        """What each rule says of a contender. A rule that raises, or says no word, is asked no more."""
        said: dict[str, Word] = {}
        for name in self.names:
            try:
                word = self._rules[name].decide(contender, baseline)
            except KeyboardInterrupt:
                raise
            except BaseException as failure:
                self.faults[name] = f"raised {one_line(failure)}"
                continue
            if word in WORDS:
                said[name] = word
            else:
                self.faults[name] = f"said {clean(word)}, which is none of {', '.join(WORDS)}"
        return said
