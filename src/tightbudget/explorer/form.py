"""The form of the page and its address, which hold the same fields.

A field of a step is named by the step's number and the parameter, such as ``0.sigma``. A blank
field is left out, as in a plan file. An address without fields is the default question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tightbudget import Neighbouring, ParameterError
from tightbudget.explorer import questions
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import OPTIONS, SAMPLERS, Sampler, sampler_of, table_of
from tightbudget.notation.parameters import parameters_of
from tightbudget.notation.values import value_of
from tightbudget.numerics.validate import finite

# How records get into a run is no mechanism of the form: it is the field "sampler" of a step.
KINDS = tuple(kind for kind, cls in MECHANISMS.items() if not issubclass(cls, Derived))
# A group of records has no field: a plan that is pasted can have one.
WAYS = {key: sampler.words for key, sampler in SAMPLERS.items() if key != "group"}
RELATIONS = tuple(relation.value for relation in Neighbouring)
SHOWS = {
    "one-more": "One more run",
    "compare": "Other bounds",
    "stopping": "Early stopping",
    "calibrate": "Calibrate noise",
}
GOALS = {
    "delta": ("epsilon", "delta"),
    "advantage": ("advantage",),
    "tpr": ("tpr", "fpr"),
}
GOALS_IN_WORDS = {
    "delta": "ε at a δ",
    "advantage": "an attack's advantage",
    "tpr": "an attack's true-positive rate",
}

_DEFAULT = (
    ("0.mechanism", "gaussian"),
    ("0.sigma", "1.0"),
    ("0.rate", "0.01"),
    ("0.times", "1000"),
)
# The first value of a needed parameter: by its name, or by a mechanism and its name.
_FIRST = {
    "sigma": "1.0",
    "scale": "10.0",
    "other_scale": "10.0",
    "bound": "3.0",
    "epsilon": "0.1",
    "mean": "20.0",
    "other_mean": "20.0",
    "distribution": "logistic",
    "randomized_response.p": "0.75",
    "histogram.p": "[3, 2, 1]",
    "histogram.q": "[1, 2, 3]",
    "loss_table.step": "1.0",
    "loss_table.remove": "[-1, [0.25, 0, 0.75], 0]",
    "mixture_of_gaussians.sensitivities": "[0, 1, 2]",
    "mixture_of_gaussians.weights": "[0.5, 0.3, 0.2]",
    "curve.epsilons": "[0.0, 0.5, 1.0]",
    "curve.deltas": "[0.3, 0.1, 0.01]",
    "best_of.run": '[{ mechanism = "gaussian", sigma = 1.0 }]',
    "best_of.trials": '{ law = "negative-binomial", mean = 20 }',
    "shuffled_reports.n": "100000",
    "shuffled_reports.epsilon0": "1.0",
    "either.probability": "0.5",
    "either.first": '{ mechanism = "gaussian", sigma = 1.0 }',
    "either.second": '{ mechanism = "laplace", scale = 10.0 }',
}
_GOALS = {"epsilon": "1.0", "delta": "1e-5", "advantage": "0.1", "tpr": "0.1", "fpr": "0.01"}
_STOPS = 4
_LABELS = {
    "epsilon": "ε",
    "delta": "δ",
    "tpr": "True-positive rate",
    "fpr": "False-positive rate",
    "times": "Runs",
    "relation": "Neighbours",
}
# An epsilon above this promises nothing: odds may change by the factor e^50, about 5e21. A run
# with such an answer was most likely meant to be sampled: DP-SGD with noise 1, rate 0.01 and 1000
# steps has an epsilon of 1.83, and of 634 without the rate.
_FAR = 50.0
# The beginnings of refusals that name a field: of a step, of a list of stops, or of the question.
_OF_A_STEP = re.compile(r"steps\[(\d+)\](?:\.|: )(\w+)")
_OF_A_STOP = re.compile(r"(stop|weight)s(?:\[|\.)(\d+)\]?")
_OF_ALL = re.compile(r"(epsilon|delta|tpr|fpr|advantage)\b")


@dataclass(frozen=True)
class StepField:
    """One field of a step.

    Attributes:
        name: the name of the field in the form.
        label: the name of the field for people.
        value: the value as typed.
        hint: the value of a blank field; empty if the field is needed.
    """

    name: str
    label: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class Form:
    """The fields as typed, in their order; a later one of the same name adds to a list."""

    pairs: tuple[tuple[str, str], ...]

    @staticmethod
    def of(pairs: Sequence[tuple[str, str]]) -> Form:
        """Reads the form from the fields of an address; without steps, it is the default form."""
        form = Form(tuple(pairs))
        return form if form.count or form.plan else Form((*_DEFAULT, *form.pairs))

    def get(self, name: str, default: str = "") -> str:
        """Returns a field's last value without surrounding blanks, or the default."""
        return next((value.strip() for key, value in self.pairs[::-1] if key == name), default)

    def all(self, name: str) -> list[str]:
        """Returns all values of a field."""
        return [value.strip() for key, value in self.pairs if key == name]

    def address(self, **more: str) -> str:
        """Writes the query of the form's address, with other values for some fields."""
        kept = [(key, value) for key, value in self.pairs if key not in {*more, "part", "do"}]
        return urlencode([*kept, *more.items()])

    # ---------------------------------------------------------------------- the mechanisms

    @property
    def plan(self) -> str:
        """The text of a plan file, which takes the place of the steps if it is there."""
        return self.get("plan")

    @property
    def count(self) -> int:
        """The number of steps in the form."""
        numbers = (key.partition(".")[0] for key, _ in self.pairs if key.endswith(".mechanism"))
        known = {n for n in numbers if n.isascii() and n.isdigit() and len(n) < 4}
        return min(len(known), questions.MOST_STEPS)

    def kind(self, i: int) -> str:
        """Returns the mechanism of a step; "gaussian" if its name is unknown."""
        kind = self.get(f"{i}.mechanism")
        return kind if kind in KINDS else "gaussian"

    def fields(self, i: int) -> list[StepField]:
        """Lists the parameters of a step as fields."""
        kind, found = self.kind(i), []
        for name, parameter in parameters_of(kind).items():
            needed = parameter.needed
            first = _FIRST.get(f"{kind}.{name}", _FIRST.get(name, "")) if needed else ""
            value = self.get(f"{i}.{name}", first)
            hint = "" if needed else f"{parameter.default!r} if blank"
            found.append(StepField(f"{i}.{name}", _label(name), value, hint))
        return found

    def sampler(self, i: int) -> Sampler:
        """Returns how records get into a run of a step: as chosen, or as its fields tell."""
        chosen = self.get(f"{i}.sampler")
        if chosen in WAYS:
            return SAMPLERS[chosen]
        typed = {name for name in OPTIONS if self.get(f"{i}.{name}")}
        try:
            return sampler_of(dict.fromkeys(typed)) or SAMPLERS["rate"]
        except ParameterError:
            return SAMPLERS["rate"]

    def sampling(self, i: int) -> list[StepField]:
        """Lists the fields that say how records get into a run of a step."""
        found, way = [], self.sampler(i)
        for name in way.options.values():
            option = OPTIONS[name]
            # a blank rate is 1, every record in every run, where nothing else is asked for
            needed = not option.blank or (name == "rate" and way.key != "rate")
            value = self.get(f"{i}.{name}", option.first if needed else "")
            hint = "" if needed else f"{option.blank} if blank"
            found.append(StepField(f"{i}.{name}", option.label, value, hint))
        return found

    def counted(self, i: int) -> str:
        """Returns the label of the number of runs of a step."""
        return "Epochs" if self.sampler(i).epoch else _LABELS["times"]

    def tables(self) -> list[dict[str, Any]]:
        """Lists the steps as tables of a plan file."""
        return [
            {**self._table(i), "times": value_of(self.get(f"{i}.times") or "1")}
            for i in range(self.count)
        ]

    def _table(self, i: int) -> dict[str, Any]:
        """Returns the table of a step, without the number of its runs."""
        try:
            return table_of(self.kind(i), dict(self._options(i)))
        except ParameterError as error:
            raise ParameterError(f"steps[{i}]: {error}") from error

    def _options(self, i: int) -> Iterator[tuple[str, Any]]:
        """Yields the options of a step that are not blank, with their values."""
        for field in [*self.fields(i), *self.sampling(i)]:
            if field.value:
                yield field.name.partition(".")[2], value_of(field.value)
        if relation := self.get(f"{i}.relation"):
            yield "relation", relation

    # ------------------------------------------------------------------------ the questions

    @property
    def given(self) -> str:
        """The name of the given quantity: "delta" or "epsilon"."""
        return "epsilon" if self.get("given") == "epsilon" else "delta"

    @property
    def at(self) -> str:
        """The value of the given quantity, as typed."""
        return self.get(self.given, "1e-5" if self.given == "delta" else "1.0")

    @property
    def show(self) -> str:
        """The name of the open panel."""
        return show if (show := self.get("show")) in SHOWS else "one-more"

    @property
    def goal(self) -> str:
        """The name of the target of a calibration."""
        return goal if (goal := self.get("goal")) in GOALS else "delta"

    def goals(self) -> list[StepField]:
        """The fields of the target of a calibration."""
        return [
            StepField(f"goal.{n}", _LABELS.get(n, _label(n)), self.get(f"goal.{n}", _GOALS[n]))
            for n in GOALS[self.goal]
        ]

    @property
    def total(self) -> int:
        """The default of the last stop: the number of runs of a single mechanism, or else 10."""
        if not self.plan and self.count == 1:
            times = value_of(self.get("0.times") or "1")
            return times if isinstance(times, int) and 0 < times <= questions.MOST_RUNS else 1
        return 10

    @property
    def stops(self) -> list[tuple[str, str]]:
        """The stops with their weights, as typed."""
        stops, weights = self.all("stop"), self.all("weight")
        if not stops:
            n = min(_STOPS, self.total)
            stops = [str(self.total * (k + 1) // n) for k in range(n)]
        weights += ["1" if i == len(stops) - 1 else "0.2" for i in range(len(weights), len(stops))]
        return list(zip(stops, weights, strict=False))

    @property
    def stopping_delta(self) -> str:
        """The delta that covers all stops."""
        return self.get("stopping.delta", self.at if self.given == "delta" else "1e-5")

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Lists the parameters that can be calibrated, such as ``0.sigma``, with a label."""
        return [
            (f"{i}.{name}", self._of_step(i, label))
            for i in range(self.count)
            for name, label in self._labels(i).items()
            if name not in self._fixed(i)
        ]

    def _fixed(self, i: int) -> set[str]:
        """Returns the fields of a step that are not calibrated.

        A number among others that say how records get into a run is not: a question names only
        parameters of a step.
        """
        options = self.sampler(i).options.values()
        return {"relation", *(options if len(options) > 1 else ())}

    @property
    def parameter(self) -> str:
        """The parameter that is to be calibrated."""
        known = [name for name, _ in self.parameters]
        return name if (name := self.get("parameter")) in known else next(iter(known), "")

    # ----------------------------------------------------------------------- what is said of it

    def _labels(self, i: int) -> dict[str, str]:
        """Maps the parameters of a step to the labels of their fields."""
        fields = [*self.fields(i), *self.sampling(i)]
        labels = {field.name.partition(".")[2]: field.label for field in fields}
        return labels | {"times": self.counted(i), "relation": _LABELS["relation"]}

    def _of_step(self, i: int, label: str) -> str:
        """Writes the label of a step's field; among several steps, with the step's number."""
        return label if self.count == 1 else f"Mechanism {i + 1}: {label}"

    def field_of(self, problem: str) -> str:
        """Returns the name of the field that a refusal is about; empty if it is about none."""
        if not self.plan and (found := _OF_A_STEP.match(problem)):
            return f"{found[1]}.{self._field(int(found[1]), found[2])}"
        found = _OF_ALL.match(problem)
        return "at" if found and found[1] in ("epsilon", "delta") else ""

    def in_words(self, problem: str) -> str:
        """Writes a refusal with the labels of this form in the place of the question's names.

        A refusal of a plan keeps its names: they are those of the plan.
        """
        if not self.plan and (found := _OF_A_STEP.match(problem)):
            i = int(found[1])
            name = self._field(i, found[2])
            label = self._labels(i).get(name, name) if i < self.count else name
            return self._of_step(i, label) + problem[found.end() :]
        if found := _OF_A_STOP.match(problem):
            label = "Stop" if found[1] == "stop" else "Weight of stop"
            return f"{label} {int(found[2]) + 1}{problem[found.end() :]}"
        if found := _OF_ALL.match(problem):
            return _LABELS.get(found[1], _label(found[1])) + problem[found.end() :]
        return problem

    def _field(self, i: int, name: str) -> str:
        """Returns the field of a step that a refusal calls by the name of a parameter."""
        return self.sampler(i).options.get(name, name)

    def lacks_rate(self, epsilon: float) -> bool:
        """Tells whether a rate was most likely forgotten: epsilon is vast, and runs unsampled."""
        unsampled = any(
            self.sampler(i).key == "rate"
            and value_of(self.get(f"{i}.rate") or "1") == 1
            and self.get(f"{i}.times", "1") not in ("", "1")
            for i in range(self.count)
        )
        return epsilon > _FAR and unsampled and not self.plan

    # -------------------------------------------------------------------- what is asked with it

    def asked(self) -> dict[str, Any]:
        """Returns the mechanisms in the form of a question."""
        return {"plan": self.plan} if self.plan else {"steps": self.tables()}

    def curve(self) -> questions.Curve:
        """Returns the question about the curve."""
        return questions.Curve(**self.asked(), **{self.given: number(self.given, self.at)})

    def panel(self) -> questions.ExplorerQuestion:
        """Returns the question of the open panel."""
        at = {self.given: number(self.given, self.at)}
        match self.show:
            case "compare":
                return questions.Compare(**self.asked(), **at)
            case "stopping":
                return self.stopping()
            case "calibrate":
                of, _, parameter = self.parameter.partition(".")
                names = zip(GOALS[self.goal], self.goals(), strict=True)
                goal = {name: number(name, field.value) for name, field in names}
                return questions.Calibrate(
                    steps=self.tables(), of=int(of or 0), parameter=parameter, **goal
                )
            case _:
                return questions.OneMore(**self.asked(), **at)

    def stopping(self) -> questions.Stopping:
        """Returns the question about early stopping."""
        return questions.Stopping(
            **self.asked(),
            delta=number("delta", self.stopping_delta),
            stops=[value_of(stop) for stop, _ in self.stops],
            weights=[number(f"weights[{i}]", w) for i, (_, w) in enumerate(self.stops)],
        )

    # -------------------------------------------------------------------------- its buttons

    def done(self, deed: str) -> Form:
        """Returns the form after a button was pressed; an unknown button changes nothing."""
        what, _, number = deed.partition(" ")
        i = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else -1
        match what:
            case "add":
                return self._with_steps([*self._steps(), [("mechanism", "laplace")]])
            case "remove" if self.count > 1:
                return self._with_steps([s for k, s in enumerate(self._steps()) if k != i])
            case "add-stop":
                return self._with_stops(_with_one_more(self.stops))
            case "remove-stop" if len(self.stops) > 1:
                return self._with_stops([s for k, s in enumerate(self.stops) if k != i])
            case "even-stops":
                return self._with_stops([])
        return self

    def _steps(self) -> list[list[tuple[str, str]]]:
        return [
            [(key.partition(".")[2], value) for key, value in self.pairs if key.startswith(f"{i}.")]
            for i in range(self.count)
        ]

    def _with_steps(self, steps: list[list[tuple[str, str]]]) -> Form:
        rest = [(k, v) for k, v in self.pairs if not k.partition(".")[0].isdigit()]
        fields = [(f"{i}.{k}", v) for i, step in enumerate(steps) for k, v in step]
        return Form((*fields, *rest))

    def _with_stops(self, stops: list[tuple[str, str]]) -> Form:
        rest = [(k, v) for k, v in self.pairs if k not in ("stop", "weight")]
        fields = [pair for s, w in stops for pair in (("stop", s), ("weight", w))]
        return Form((*rest, *fields))


def _label(name: str) -> str:
    words = name.replace("_", " ")
    return words.capitalize() if len(words) > 1 else words  # p and q are letters of formulas


def number(name: str, text: str) -> Any:
    """Reads a typed number; a text that is no number is refused by the field's name."""
    value = value_of(text)
    return finite(**{name: value})


def _with_one_more(stops: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Adds a stop in the middle of the widest gap between stops."""
    numbers = [0, *(value_of(stop) for stop, _ in stops)]
    if not all(isinstance(n, int) for n in numbers):
        return stops
    i = max(range(len(stops)), key=lambda k: numbers[k + 1] - numbers[k])
    middle = (numbers[i] + numbers[i + 1]) // 2
    if not numbers[i] < middle:
        return stops
    return [*stops[:i], (str(middle), "0.2"), *stops[i:]]
